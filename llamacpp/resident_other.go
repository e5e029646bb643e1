//go:build !linux

package llamacpp

func dropResident(string) {}
