package main

import (
	"os/exec"
	"syscall"
)

// endsWith has the system end a process with the thread that starts it, and so if this program is
// killed.
func endsWith(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
