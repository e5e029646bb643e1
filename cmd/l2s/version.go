package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/klauspost/cpuid/v2"

	"github.com/learning-to-screen/l2s/kernels"
)

func versionVerb() *verb {
	return &verb{
		name: "version", args: "",
		summary: "print the version, the CPU and the SIMD level",
		help:    "Prints the version of l2s and of Go, the CPU, and the SIMD level in use.",
		run:     runVersion,
	}
}

func runVersion(_ context.Context, e *env) error {
	asJSON := e.flags.Bool("json", false, "print JSON")
	if _, err := e.parse(); err != nil {
		return err
	}
	version := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		version = info.Main.Version
	}
	cpu := cpuid.CPU.BrandName
	if cpu == "" {
		cpu = "unknown"
	}
	if *asJSON {
		return writeJSON(e.stdout, map[string]string{
			"version": version, "go": runtime.Version(), "os": runtime.GOOS, "arch": runtime.GOARCH, "cpu": cpu, "level": kernels.Level(),
		})
	}
	fmt.Fprintf(e.stdout, "l2s    %s\ngo     %s %s/%s\ncpu    %s\nlevel  %s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, cpu, kernels.Level())
	return nil
}
