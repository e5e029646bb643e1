package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// changing are the methods that the sandbox refuses: they change a value.
var changing = map[string][]string{
	"list": {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"},
	"dict": {"clear", "pop", "popitem", "setdefault", "update"},
}

// method returns a method of a value, nil if it has none of the name.
func (r *render) method(of any, name string) any {
	kind := typeName(of)
	if slices.Contains(changing[kind], name) {
		return &undefined{message: "access to attribute '" + name + "' of '" + kind + "' object is unsafe.", unsafe: true}
	}
	bound := func(need int, params []string, run func(a []any) any) any {
		return &function{name, func(r *render, c *call) any { return run(r.bind(name, c, need, params...)) }}
	}
	if text, ok := str(of); ok {
		return r.textMethod(text, name, bound)
	}
	switch x := of.(type) {
	case *Dict:
		switch name {
		case "get":
			return bound(1, []string{"key", "default"}, func(a []any) any {
				if v, ok := x.get(a[0]); ok {
					return v
				}
				return or(a[1], nil)
			})
		case "items":
			return bound(0, nil, func([]any) any { return r.list(view, r.pairs(x)) })
		case "keys":
			return bound(0, nil, func([]any) any { return r.list(view, x.keys) })
		case "values":
			return bound(0, nil, func([]any) any {
				var values []any
				for _, key := range x.keys {
					v, _ := x.get(key)
					values = append(values, v)
				}
				return r.list(view, values)
			})
		case "copy":
			return bound(0, nil, func([]any) any { return x })
		}
	case *sequence:
		if x.form > tuple {
			break
		}
		switch name {
		case "index":
			return bound(1, []string{"value"}, func(a []any) any {
				for i, item := range x.items {
					if r.equal(item, a[0]) {
						return int64(i)
					}
				}
				r.fail("list.index(x): x not in list")
				return nil
			})
		case "count":
			return bound(1, []string{"value"}, func(a []any) any {
				n := int64(0)
				for _, item := range x.items {
					n += toInt(r.equal(item, a[0]))
				}
				return n
			})
		case "copy":
			if x.form == list {
				return bound(0, nil, func([]any) any { return x })
			}
		}
	}
	return nil
}

// textMethod returns a method of a string. A markup one's methods return plain text.
func (r *render) textMethod(s, name string, bound func(int, []string, func([]any) any) any) any {
	whole := func(run func() any) any {
		return bound(0, nil, func([]any) any {
			r.spend(len(s) / 16)
			return run()
		})
	}
	all := func(is func(rune) bool) any {
		return whole(func() any { return s != "" && strings.IndexFunc(s, func(c rune) bool { return !is(c) }) < 0 })
	}
	strips := func(sides int) any {
		return bound(0, []string{"chars"}, func(a []any) any {
			r.spend(len(s) / 16)
			return trim(s, r.texts(name, []any{or(a[0], nil)}, "")[0], or(a[0], nil) != nil, sides)
		})
	}
	found := func(run func(part string) int) any {
		return bound(1, []string{"sub"}, func(a []any) any {
			r.spend(len(s) / 16)
			i := run(r.texts(name, a)[0])
			if i < 0 && strings.HasSuffix(name, "index") {
				r.fail("substring not found")
			}
			return int64(i)
		})
	}
	parts := func(list ...string) []any {
		r.hold(32 * len(list))
		items := make([]any, len(list))
		for i, part := range list {
			items[i] = part
		}
		return items
	}
	affix := func(has func(string, string) bool) any {
		return bound(1, []string{"affix", "start"}, func(a []any) any {
			of := s
			if a[1] != any(absent) {
				runes := []rune(s)
				r.hold(4 * len(s))
				begin, _, _ := r.bounds([3]any{a[1], nil, nil}, len(runes))
				of = string(runes[begin:])
			}
			options := []any{a[0]}
			if t, ok := a[0].(*sequence); ok && t.form == tuple {
				options = t.items
			}
			for _, option := range r.texts(name, options) {
				if has(of, option) {
					return true
				}
			}
			return false
		})
	}
	pads := func(left float64) any {
		return bound(1, []string{"width", "fill"}, func(a []any) any {
			with := r.texts(name, a[1:], " ")[0]
			if utf8.RuneCountInString(with) != 1 {
				r.fail("The fill character must be exactly one character long")
			}
			return r.fill(s, r.integer(a[0]), left, with)
		})
	}
	runes := func(bytes int) int {
		if bytes < 0 {
			return -1
		}
		return utf8.RuneCountInString(s[:bytes])
	}
	switch name {
	case "strip":
		return strips(3)
	case "lstrip":
		return strips(1)
	case "rstrip":
		return strips(2)
	case "upper":
		return whole(func() any { return r.upper(s) })
	case "lower", "casefold":
		return whole(func() any { return r.lower(s) })
	case "capitalize":
		return whole(func() any { return r.capital(s) })
	case "title":
		return whole(func() any { return r.title(s, func(before rune) bool { return !isCased(before) }) })
	case "isdigit", "isdecimal":
		return all(unicode.IsDigit)
	case "isnumeric":
		return all(unicode.IsNumber)
	case "isalpha":
		return all(unicode.IsLetter)
	case "isalnum":
		return all(func(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) })
	case "isspace":
		return all(space)
	case "isupper", "islower":
		return whole(func() any { return r.test(name[2:], s, &call{}) })
	case "startswith":
		return affix(strings.HasPrefix)
	case "endswith":
		return affix(strings.HasSuffix)
	case "removeprefix", "removesuffix":
		return bound(1, []string{"affix"}, func(a []any) any {
			part := r.texts(name, a)[0]
			if name == "removeprefix" {
				return strings.TrimPrefix(s, part)
			}
			return strings.TrimSuffix(s, part)
		})
	case "find", "index":
		return found(func(part string) int { return runes(strings.Index(s, part)) })
	case "rfind", "rindex":
		return found(func(part string) int { return runes(strings.LastIndex(s, part)) })
	case "count":
		return found(func(part string) int { return strings.Count(s, part) })
	case "replace":
		return bound(2, []string{"old", "new", "count"}, func(a []any) any {
			t := r.texts(name, a[:2])
			return r.replace(s, t[0], t[1], a[2])
		})
	case "join":
		return bound(1, []string{"iterable"}, func(a []any) any {
			var b strings.Builder
			for i, text := range r.texts(name, r.items(a[0])) {
				if i > 0 {
					b.WriteString(r.made(s))
				}
				b.WriteString(r.made(text))
			}
			return b.String()
		})
	case "split", "rsplit":
		return bound(0, []string{"sep", "maxsplit"}, func(a []any) any {
			r.hold(len(s))
			most := r.integer(or(a[1], int64(-1)))
			if or(a[0], nil) == nil {
				if name == "rsplit" && most >= 0 {
					r.fail("rsplit: found maxsplit without a separator")
				}
				return r.list(list, parts(fields(s, most)...))
			}
			sep := r.texts(name, a[:1])[0]
			if sep == "" {
				r.fail("empty separator")
			}
			if name == "rsplit" && most >= 0 {
				var after []string
				rest := s
				for ; most > 0; most-- {
					i := strings.LastIndex(rest, sep)
					if i < 0 {
						break
					}
					r.spend(1 + len(rest)/64)
					after = append(after, rest[i+len(sep):])
					rest = rest[:i]
				}
				after = append(after, rest)
				slices.Reverse(after)
				return r.list(list, parts(after...))
			}
			if most < 0 {
				most = -2
			}
			r.repeats(16, int64(strings.Count(s, sep)))
			return r.list(list, parts(strings.SplitN(s, sep, most+1)...))
		})
	case "splitlines":
		return bound(0, []string{"keepends"}, func(a []any) any {
			r.hold(16 * strings.Count(s, "\n"))
			return r.list(list, parts(splitLines(s, r.truth(or(a[0], false)))...))
		})
	case "partition", "rpartition":
		return bound(1, []string{"sep"}, func(a []any) any {
			sep := r.texts(name, a)[0]
			if sep == "" {
				r.fail("empty separator")
			}
			i := strings.Index(s, sep)
			if name == "rpartition" {
				i = strings.LastIndex(s, sep)
			}
			switch {
			case i >= 0:
				return r.list(tuple, parts(s[:i], sep, s[i+len(sep):]))
			case name == "partition":
				return r.list(tuple, parts(s, "", ""))
			}
			return r.list(tuple, parts("", "", s))
		})
	case "ljust":
		return pads(0)
	case "rjust":
		return pads(1)
	case "zfill":
		return bound(1, []string{"width"}, func(a []any) any {
			sign := ""
			digits := s
			if s != "" && (s[0] == '-' || s[0] == '+') {
				sign, digits = s[:1], s[1:]
			}
			return sign + r.fill(digits, r.integer(a[0])-len(sign), 1, "0")
		})
	case "format":
		return &function{name, func(r *render, c *call) any { return r.format(s, c) }}
	}
	return nil
}

// fields are the words of a text, at most n and the rest, all if n is negative.
func fields(s string, n int) (list []string) {
	for s = strings.TrimLeftFunc(s, space); s != ""; n-- {
		i := strings.IndexFunc(s, space)
		if n == 0 || i < 0 {
			return append(list, s)
		}
		list = append(list, s[:i])
		s = strings.TrimLeftFunc(s[i:], space)
	}
	return list
}
