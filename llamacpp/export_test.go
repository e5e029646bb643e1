package llamacpp

import "unsafe"

// Forget takes an architecture from those that are known, until the end of f.
func Forget(arch string, f func()) {
	delete(known, arch)
	defer func() { known[arch] = true }()
	f()
}

// AskedAbout says what the callback of a hook answers about a node of that name, when it is asked,
// and whether it has seen that the head is computed.
func (m *Model) AskedAbout(name string) (wanted, headAsked bool) {
	tensor := make([]byte, maxNameOffset+nameBytes)
	copy(tensor[nameOffset:], name)
	m.hook.headAsked = false
	wanted = evaluated(uintptr(unsafe.Pointer(&tensor[0])), true, m.hook.number)
	return wanted, m.hook.headAsked
}

// Valid is what llama.cpp is given of a text.
func Valid(text string) string { return valid(text) }

// Threads is the number of threads that llama.cpp is given.
func Threads(n int) int { return int(threads(n)) }
