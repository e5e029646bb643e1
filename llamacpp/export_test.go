package llamacpp

import "unsafe"

// Forget removes an architecture from the known ones until the end of f.
func Forget(arch string, f func()) {
	delete(known, arch)
	defer func() { known[arch] = true }()
	f()
}

// AskedAbout returns the answer of the callback of a hook about a node of that name, and whether
// the callback has seen that the head is computed.
func (m *Model) AskedAbout(name string) (wanted, headAsked bool) {
	tensor := make([]byte, maxNameOffset+nameBytes)
	copy(tensor[nameOffset:], name)
	m.hook.headAsked = false
	wanted = evaluated(uintptr(unsafe.Pointer(&tensor[0])), true, m.hook.number)
	return wanted, m.hook.headAsked
}

// Valid returns the part of a text that llama.cpp gets.
func Valid(text string) string { return valid(text) }

// Threads is the number of threads that llama.cpp is given.
func Threads(n int) int { return int(threads(n)) }

// ErrNoFolder is the error of Load without a folder.
var ErrNoFolder = errNoFolder
