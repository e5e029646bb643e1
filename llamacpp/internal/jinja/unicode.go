package jinja

import (
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// NotUnicode describes the first bytes of a JSON text that encoding/json would replace in silence:
// bytes that are no UTF-8, and half a surrogate pair, as \ud83d. It returns "" if there are none.
func NotUnicode(body []byte) string {
	for at := 0; at < len(body); {
		r, size := utf8.DecodeRune(body[at:])
		if r == utf8.RuneError && size == 1 {
			return fmt.Sprintf("the byte 0x%02x at byte %d, which is no UTF-8", body[at], at)
		}
		if r != '\\' {
			at += size
			continue
		}
		if r, size = escaped(body[at:]); utf16.IsSurrogate(r) {
			low, more := escaped(body[at+size:])
			if utf16.DecodeRune(r, low) == utf8.RuneError {
				return fmt.Sprintf("%s at byte %d, which is half a surrogate pair", body[at:at+size], at)
			}
			size += more
		}
		at += size
	}
	return ""
}

// escaped returns the number of the escape \uXXXX that a text begins with, and its size; 0 for
// others, which have two bytes.
func escaped(text []byte) (r rune, size int) {
	if len(text) >= 6 && text[0] == '\\' && text[1] == 'u' {
		if n, err := strconv.ParseUint(string(text[2:6]), 16, 16); err == nil {
			return rune(n), 6
		}
	}
	return 0, 2
}
