module github.com/learning-to-screen/l2s

go 1.25

require (
	github.com/klauspost/cpuid/v2 v2.4.2
	pgregory.net/rapid v1.3.0
)

require golang.org/x/sys v0.41.0 // indirect
