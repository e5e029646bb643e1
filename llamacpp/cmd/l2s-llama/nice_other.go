//go:build !unix

package main

import "os"

// giveWay does nothing on systems without priorities of threads.
func giveWay() {}

func interrupt(p *os.Process) error { return p.Kill() }
