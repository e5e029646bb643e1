package arm64

import (
	"fmt"
	"strconv"
	"strings"
)

// operand is one operand of an instruction: a register, with its arrangement and
// an index if it is one, a list of them, a number, memory, or a name.
type operand struct {
	kind        byte // x, w; v, q, d, s, h; #; [ memory; { a list; n a name
	number      int  // of the register, or of the first of a list; the value of #
	arrangement string
	index       int // of the lane, or -1
	count       int // of a list
	base        int // of memory
	offset      int
}

// arrangements are the shapes of vectors: whether all of the register is used, the
// binary logarithm of an element's bytes, and Go's name.
var arrangements = map[string]struct {
	q, size uint32
	name    string
}{
	"8b": {0, 0, "B8"}, "16b": {1, 0, "B16"},
	"4h": {0, 1, "H4"}, "8h": {1, 1, "H8"},
	"2s": {0, 2, "S2"}, "4s": {1, 2, "S4"},
	"2d": {1, 3, "D2"},
	"b":  {0, 0, "B"}, "h": {0, 1, "H"}, "s": {0, 2, "S"}, "d": {0, 3, "D"},
}

func parseOperand(s string) (o operand, err error) {
	o.index = -1
	switch {
	case s == "":
		return o, fmt.Errorf("empty operand")
	case s[0] == '#':
		o.kind = '#'
		o.number, err = strconv.Atoi(s[1:])
		return o, err
	case s[0] == '[':
		o.kind = '['
		for i, part := range strings.Split(strings.Trim(s, "[]"), ",") {
			p, err := parseOperand(strings.TrimSpace(part))
			switch {
			case err != nil:
				return o, err
			case i == 0 && p.kind == 'x':
				o.base = p.number
			case i == 1 && p.kind == '#':
				o.offset = p.number
			default:
				return o, fmt.Errorf("memory %s: expected a register and a number", s)
			}
		}
		return o, nil
	case s[0] == '{':
		body, index, _ := strings.Cut(s[1:], "}")
		parts := strings.Split(body, ",")
		if o, err = parseOperand(strings.TrimSpace(parts[0])); err != nil {
			return o, err
		}
		o.kind, o.count = '{', len(parts)
		if index != "" {
			o.index, err = strconv.Atoi(strings.Trim(index, "[]"))
		}
		return o, err
	}
	if s == "xzr" {
		o.kind, o.arrangement = 'n', "ZR"
		return o, nil
	}
	name, rest, _ := strings.Cut(s, ".")
	if n, err := strconv.Atoi(name[1:]); err == nil && strings.ContainsRune("xwvqdsh", rune(name[0])) {
		o.kind, o.number = name[0], n
		var lane string
		o.arrangement, lane, _ = strings.Cut(rest, "[")
		if lane != "" {
			o.index, err = strconv.Atoi(strings.TrimSuffix(lane, "]"))
		}
		return o, err
	}
	o.kind, o.arrangement = 'n', s
	return o, nil
}

// text is the operand in Go's syntax.
func (o operand) text() string {
	switch o.kind {
	case '#':
		return fmt.Sprintf("$%d", o.number)
	case 'x', 'w':
		return fmt.Sprintf("R%d", o.number)
	case 'q', 'd', 's':
		return fmt.Sprintf("F%d", o.number)
	case 'v':
		s := fmt.Sprintf("V%d.%s", o.number, arrangements[o.arrangement].name)
		if o.index >= 0 {
			s += fmt.Sprintf("[%d]", o.index)
		}
		return s
	case '{':
		if o.index >= 0 {
			o.kind = 'v'
			return o.text()
		}
		var regs []string
		for i := range o.count {
			regs = append(regs, fmt.Sprintf("V%d.%s", o.number+i, arrangements[o.arrangement].name))
		}
		return "[" + strings.Join(regs, ", ") + "]"
	case '[':
		if o.offset != 0 {
			return fmt.Sprintf("%d(R%d)", o.offset, o.base)
		}
		return fmt.Sprintf("(R%d)", o.base)
	}
	return o.arrangement
}

func parse(text string) (mnemonic string, ops []operand, err error) {
	mnemonic, rest, _ := strings.Cut(text, " ")
	depth, start := 0, 0
	rest += ","
	for i, c := range rest {
		switch c {
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			if depth > 0 || strings.TrimSpace(rest[start:i]) == "" {
				continue
			}
			o, err := parseOperand(strings.TrimSpace(rest[start:i]))
			if err != nil {
				return "", nil, err
			}
			ops = append(ops, o)
			start = i + 1
		}
	}
	return mnemonic, ops, nil
}

// target returns the label that a branch goes to.
func target(text string) (label string, ok bool) {
	mnemonic, rest, _ := strings.Cut(text, " ")
	switch {
	case mnemonic == "b", strings.HasPrefix(mnemonic, "b."):
		return rest, true
	case mnemonic == "cbz", mnemonic == "cbnz", mnemonic == "tbz":
		return strings.TrimSpace(rest[strings.LastIndex(rest, ",")+1:]), true
	}
	return "", false
}

// translate turns an instruction in ARM's notation into Go's.
func translate(text string, l Level) (string, error) {
	mnemonic, ops, err := parse(text)
	if err != nil {
		return "", err
	}
	if s, ok := inGo(mnemonic, ops); ok {
		return s, nil
	}
	e, ok := encodings[mnemonic]
	if !ok {
		return "", fmt.Errorf("an instruction that is not known")
	}
	if e.extension != "" && !strings.Contains(l.Requires, e.extension) {
		return "", fmt.Errorf("needs %s, which is not in %s", e.extension, l.Requires)
	}
	word, err := e.encode(ops)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("WORD $0x%08x // %s", word, text), nil
}

// names are the instructions of Go's assembler whose operands are in the reverse order of ARM's.
var names = map[string]string{
	"add": "ADD", "sub": "SUB", "subs": "SUBS", "and": "AND", "lsl": "LSL", "lsr": "LSR",
	"rbit": "RBIT", "clz": "CLZ", "cmp": "CMP", "mov": "MOVD",
	"b": "JMP", "ret": "RET", "movz": "MOVZ", "movk": "MOVK",
	"v.fmla": "VFMLA", "v.add": "VADD", "v.sub": "VSUB", "v.and": "VAND", "v.eor": "VEOR",
	"v.umax": "VUMAX", "v.uzp1": "VUZP1", "v.uzp2": "VUZP2", "v.zip1": "VZIP1", "v.zip2": "VZIP2",
	"v.ext": "VEXT", "v.bsl": "VBSL", "v.ushr": "VUSHR", "v.shl": "VSHL", "v.sli": "VSLI", "v.addp": "VADDP", "v.cmtst": "VCMTST",
	"v.dup": "VDUP", "v.movi": "VMOVI", "ld1": "VLD1", "ld1r": "VLD1R",
}

// inGo returns an instruction in Go's syntax, if Go's assembler has it.
func inGo(mnemonic string, ops []operand) (string, bool) {
	join := func(name string, ops ...string) string {
		return strings.TrimSpace(name + " " + strings.Join(ops, ", "))
	}
	reversed := func(name string) string {
		var s []string
		for i := len(ops) - 1; i >= 0; i-- {
			s = append(s, ops[i].text())
		}
		return join(name, s...)
	}
	scalar := func(kind byte) string { return map[byte]string{'x': "D", 'w': "W", 'q': "Q", 'd': "D", 's': "S"}[kind] }
	if condition, ok := strings.CutPrefix(mnemonic, "b."); ok {
		return join("B"+strings.ToUpper(condition), ops[0].text()), true
	}
	switch mnemonic {
	case "ldr", "str":
		r, m := ops[0], ops[1]
		if r.kind == 'h' {
			return "", false
		}
		name := "MOV" + scalar(r.kind)
		switch {
		case r.kind == 'w' && mnemonic == "ldr":
			name = "MOVWU"
		case r.kind != 'x' && r.kind != 'w':
			name = "F" + name
		}
		if len(ops) == 3 {
			name += ".P"
			m.offset = ops[2].number
		}
		if mnemonic == "ldr" {
			return join(name, m.text(), r.text()), true
		}
		return join(name, r.text(), m.text()), true
	case "ldp":
		m := ops[2]
		name := "FLDP" + scalar(ops[0].kind)
		if len(ops) == 4 {
			name += ".P"
			m.offset = ops[3].number
		}
		return join(name, m.text(), fmt.Sprintf("(%s, %s)", ops[0].text(), ops[1].text())), true
	case "ld1", "ld1r", "st1":
		name, m := strings.ToUpper("v"+mnemonic), ops[1]
		if len(ops) == 3 {
			name += ".P"
			m.offset = ops[2].number
		}
		if mnemonic == "st1" {
			return join(name, ops[0].text(), m.text()), true
		}
		return join(name, m.text(), ops[0].text()), true
	case "prfm":
		return join("PRFM", ops[1].text(), strings.ToUpper(ops[0].arrangement)), true
	case "tbz":
		return join("TBZ", ops[1].text(), ops[0].text(), ops[2].text()), true
	case "cbz", "cbnz":
		return join(strings.ToUpper(mnemonic), ops[0].text(), ops[1].text()), true
	case "csel":
		return join("CSEL", strings.ToUpper(ops[3].arrangement), ops[1].text(), ops[2].text(), ops[0].text()), true
	case "madd":
		return join("MADD", ops[2].text(), ops[3].text(), ops[1].text(), ops[0].text()), true
	case "fmadd":
		return join("FMADD"+scalar(ops[0].kind), ops[2].text(), ops[3].text(), ops[1].text(), ops[0].text()), true
	case "fcvt":
		return reversed("FCVT" + scalar(ops[1].kind) + scalar(ops[0].kind)), true
	case "fcmp":
		return reversed("FCMP" + scalar(ops[0].kind)), true
	case "fmov":
		if ops[0].kind == 'v' {
			return "", false
		}
		kind := ops[0].kind
		if kind == 'x' || kind == 'w' {
			kind = ops[1].kind
		}
		return reversed("FMOV" + scalar(kind)), true
	case "movz", "movk":
		value := ops[1].text()
		if len(ops) == 3 { // lsl #n
			value = fmt.Sprintf("$(%d%s)", ops[1].number, "<<"+strings.TrimPrefix(ops[2].arrangement, "lsl #"))
		}
		return join(strings.ToUpper(mnemonic), value, ops[0].text()), true
	case "ins":
		return join("VMOV", ops[1].text(), ops[0].text()), true
	case "addv":
		return join("VADDV", ops[1].text(), fmt.Sprintf("V%d", ops[0].number)), true
	case "add", "sub":
		// With a shifted register.
		if len(ops) == 4 {
			by := ops[2].text() + "<<" + strings.TrimPrefix(ops[3].arrangement, "lsl #")
			return join(names[mnemonic], by, ops[1].text(), ops[0].text()), true
		}
	}
	key := mnemonic
	if len(ops) > 0 && ops[0].kind == 'v' {
		key = "v." + mnemonic
		for _, o := range ops[1:] {
			if o.index >= 0 && mnemonic != "dup" {
				return "", false
			}
		}
	}
	name, ok := names[key]
	if !ok {
		return "", false
	}
	return reversed(name), true
}

// encoding is how an instruction that Go's assembler lacks is encoded.
type encoding struct {
	extension string // beyond Advanced SIMD
	encode    func(ops []operand) (uint32, error)
}

// vector returns the encoding of an instruction of vectors with the given fixed bits, to which come
// the registers and, from operand shape, whether it uses the whole register and its elements' size.
// sizes tells how the size is written: "size", or "float", a bit for float64; "" if it is in the
// fixed bits.
func vector(fixed uint32, shape int, sizes string) encoding {
	return encoding{encode: func(ops []operand) (uint32, error) {
		a, ok := arrangements[ops[shape].arrangement]
		if !ok {
			return 0, fmt.Errorf("arrangement %q", ops[shape].arrangement)
		}
		word := fixed | a.q<<30
		switch sizes {
		case "size":
			word |= a.size << 22
		case "half": // from float16 or float32
			word |= (a.size - 1) << 22
		case "float":
			if a.size < 2 {
				return 0, fmt.Errorf("arrangement %q is not one of floats", ops[shape].arrangement)
			}
			word |= (a.size - 2) << 22
		}
		for i, o := range ops {
			if o.kind != '#' {
				word |= uint32(o.number) << [...]int{0, 5, 16}[i]
			}
		}
		return word, nil
	}}
}

// indexed returns the encoding of an instruction of floats whose last operand is one
// lane for all.
func indexed(fixed uint32) encoding {
	return encoding{encode: func(ops []operand) (uint32, error) {
		a := arrangements[ops[0].arrangement]
		m, i := uint32(ops[2].number), uint32(ops[2].index)
		word := fixed | a.q<<30 | (a.size-2)<<22 | m<<16 | uint32(ops[1].number)<<5 | uint32(ops[0].number)
		if a.size == 3 {
			return word | i<<11, nil
		}
		return word | i&1<<21 | i>>1<<11, nil
	}}
}

// extend returns the encoding of an instruction that widens elements to twice their size, as a
// shift by no bits.
func extend(fixed uint32) encoding {
	return encoding{encode: func(ops []operand) (uint32, error) {
		a := arrangements[ops[1].arrangement]
		return fixed | a.q<<30 | 8<<a.size<<16 | uint32(ops[1].number)<<5 | uint32(ops[0].number), nil
	}}
}

// scalarOr returns the encoding for vectors, or that for scalars if the first
// operand is one, whose fixed bits are given.
func scalarOr(fixed uint32, vectors encoding) encoding {
	return encoding{encode: func(ops []operand) (uint32, error) {
		if ops[0].kind == 'v' {
			return vectors.encode(ops)
		}
		word := fixed | uint32(ops[1].number)<<5 | uint32(ops[0].number)
		if ops[0].kind == 'd' {
			word |= 1 << 22
		}
		return word, nil
	}}
}

// laneOr returns the encoding for vectors, or that for a last operand of one lane.
func laneOr(fixed uint32, vectors encoding) encoding {
	lane := indexed(fixed)
	return encoding{encode: func(ops []operand) (uint32, error) {
		if ops[len(ops)-1].index >= 0 {
			return lane.encode(ops)
		}
		return vectors.encode(ops)
	}}
}

// extended marks an encoding as one of an extension.
func extended(extension string, e encoding) encoding {
	e.extension = extension
	return e
}

// encodings are the instructions that Go's assembler lacks.
var encodings = map[string]encoding{
	// Three registers of one shape.
	"fadd":   vector(0x0e20d400, 0, "float"),
	"fsub":   vector(0x0ea0d400, 0, "float"),
	"fmul":   laneOr(0x0f809000, vector(0x2e20dc00, 0, "float")),
	"fmla":   indexed(0x0f801000), // of vectors Go's assembler has it
	"fmls":   indexed(0x0f805000),
	"fmaxnm": vector(0x0e20c400, 0, "float"),
	"fminnm": vector(0x0ea0c400, 0, "float"),
	"fcmgt":  vector(0x2ea0e400, 0, "float"),
	"fcmge":  vector(0x2e20e400, 0, "float"),
	"faddp":  scalarOr(0x7e30d800, vector(0x2e20d400, 0, "float")),
	"cmgt":   vector(0x0e203400, 0, "size"),
	"smin":   vector(0x0e206c00, 0, "size"),
	"sdot":   extended("ASIMDDP", vector(0x0e809400, 0, "")),
	"usmmla": extended("I8MM", vector(0x0e80ac00, 0, "")),
	// Products twice as wide as their factors.
	"smull":  vector(0x0e20c000, 1, "size"),
	"smull2": vector(0x0e20c000, 1, "size"),
	"smlal":  vector(0x0e208000, 1, "size"),
	"smlal2": vector(0x0e208000, 1, "size"),
	// Two registers.
	"fabs":   vector(0x0ea0f800, 0, "float"),
	"fcvtns": vector(0x0e21a800, 0, "float"),
	"frintn": vector(0x0e218800, 0, "float"),
	"scvtf":  vector(0x0e21d800, 0, "float"),
	"sadalp": vector(0x0e206800, 1, "size"),
	"saddlp": vector(0x0e202800, 1, "size"),
	// To integers twice as wide.
	"sxtl":  extend(0x0f00a400),
	"sxtl2": extend(0x0f00a400),
	// To float elements twice as wide.
	"fcvtl":  vector(0x0e217800, 1, "half"),
	"fcvtl2": vector(0x0e217800, 1, "half"),
	// All lanes to one.
	"fmaxnmv": vector(0x2e30c800, 1, "float"),
	"fminnmv": vector(0x2eb0c800, 1, "float"),
	"umaxv":   vector(0x2e30a800, 1, "size"),
	// Shifts by the number of bits of an element, and from 16 to 8 bits.
	"shll":  vector(0x2e213800, 1, "size"),
	"shll2": vector(0x2e213800, 1, "size"),
	"shrn": {encode: func(ops []operand) (uint32, error) {
		if ops[1].arrangement != "8h" {
			return 0, fmt.Errorf("a source of other elements than 16 bits")
		}
		return 0x0f008400 | uint32(16-ops[2].number)<<16 | uint32(ops[1].number)<<5 | uint32(ops[0].number), nil
	}},
	// A load of 16 bits.
	"ldr": {encode: func(ops []operand) (uint32, error) {
		r, m := ops[0], ops[1]
		if m.offset < 0 || m.offset%2 != 0 || len(ops) != 2 {
			return 0, fmt.Errorf("an address that is not known")
		}
		return 0x7d400000 | uint32(m.offset/2)<<10 | uint32(m.base)<<5 | uint32(r.number), nil
	}},
}
