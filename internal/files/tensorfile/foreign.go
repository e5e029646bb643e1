package tensorfile

import "bytes"

// checkForeign refuses content that was downloaded in the place of a file: the few lines of text
// that git has for a large file, or a page of the web.
func checkForeign(path string, data []byte) error {
	start := bytes.ToLower(bytes.TrimLeft(data[:min(len(data), 256)], " \t\r\n\ufeff"))
	switch {
	case bytes.HasPrefix(start, []byte("version https://git-lfs")):
		return fail(path, "contents", "found a pointer of git-lfs, which names a file, expected the file itself: run git lfs pull in its folder, or download it with hf download")
	case bytes.HasPrefix(start, []byte("<!doctype html")), bytes.HasPrefix(start, []byte("<html")):
		return fail(path, "contents", "found a page of HTML, expected the file itself: download it anew, by the address of its button Download or with hf download, and sign in if the model asks for it")
	}
	return nil
}
