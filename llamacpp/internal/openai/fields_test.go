package openai

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/learning-to-screen/l2s/internal/ground/jsonscan"
)

// A number of JSON with an integral value is that integer, however it is written, and no other value
// is one: math/big agrees.
func TestIntegersOfJSON(t *testing.T) {
	check := func(t interface{ Errorf(string, ...any) }, text string) {
		want, ok := new(big.Rat).SetString(text)
		ok = ok && json.Valid([]byte(text)) && want.IsInt() && want.Num().IsInt64()
		x, found := integerOf([]byte(text))
		if found != ok || ok && x != want.Num().Int64() {
			t.Errorf("%s: found %d, %v, expected %v, %v", text, x, found, want, ok)
		}
		id, err := tokenID(jsonscan.Value(text))
		if is := ok && want.Sign() >= 0 && want.Num().Int64() < 1<<32; (err == nil) != is || is && int64(id) != x {
			t.Errorf("%s: found the token %d, %v", text, id, err)
		}
	}
	for _, text := range []string{"0", "-0", "-0.0", "0e99", "0.0e-99", "28", "28.0", "2.8e1", "2.80e+1", "280e-1", "280E-2", "28.5", "1e-1", "4294967295", "4294967296",
		"9007199254740993.0", "9223372036854775807", "9.223372036854775807e18", "-9223372036854775808", "-922337203685477580.8e1", "9223372036854775808",
		"-9223372036854775809", "18446744073709551616", "184467440737095516160e-1", "1e19", "1e300", "1e-300", "10000000000000000000000e-22", "0.00000000000000000000001e23",
		strings.Repeat("1", 400), "1" + strings.Repeat("0", 300) + "e-300", "1.00000000000000000000000000001"} {
		check(t, text)
	}
	for _, text := range []string{"1e99999999999999999999", "1e-99999999999999999999", "0.1e-9223372036854775808", "1e9223372036854775807", "null", `"28"`, "[28]", "true", "{}"} {
		if x, ok := integerOf([]byte(text)); ok {
			t.Errorf("%s: found %d, expected no integer", text, x)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		whole := rapid.StringMatching(`-?(0|[1-9][0-9]{0,21})`).Draw(t, "whole")
		rest := rapid.StringMatching(`(\.(0{0,6}|[0-9]{1,21}))?`).Draw(t, "rest")
		if rest == "." {
			rest = ""
		}
		e := ""
		if rapid.Bool().Draw(t, "has an exponent") {
			e = fmt.Sprintf("e%d", rapid.IntRange(-25, 25).Draw(t, "exponent"))
		}
		check(t, whole+rest+e)
	})
}
