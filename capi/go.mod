module github.com/learning-to-screen/l2s/capi

go 1.25.0

require github.com/learning-to-screen/l2s v0.0.0

require (
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/sys v0.41.0 // indirect
)

replace github.com/learning-to-screen/l2s => ../
