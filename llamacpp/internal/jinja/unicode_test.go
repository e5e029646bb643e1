package jinja

import "testing"

// Text that encoding/json would replace in silence is found, with its place.
func TestNotUnicode(t *testing.T) {
	for text, want := range map[string]string{
		``:                         "",
		`{"x":"é 😀"}`:              "",
		`"\ud83d\ude00"`:           "",
		`"\\ud83d"`:                "", // a backslash, and letters
		`"\u00e9\n"`:               "",
		`"\ud83d"`:                 `\ud83d at byte 1, which is half a surrogate pair`,
		`"ab\ude00\ud83d"`:         `\ude00 at byte 3, which is half a surrogate pair`,
		`"\ud83d\u0041"`:           `\ud83d at byte 1, which is half a surrogate pair`,
		"\"\xff\"":                 "the byte 0xff at byte 1, which is no UTF-8",
		"{\"a\":\"\xed\xa0\x80\"}": "the byte 0xed at byte 6, which is no UTF-8",
	} {
		if found := NotUnicode([]byte(text)); found != want {
			t.Errorf("%q: found %q, expected %q", text, found, want)
		}
	}
}
