module github.com/learning-to-screen/l2s/llamacpp

go 1.26.0

require (
	github.com/ebitengine/purego v0.10.2
	github.com/hybridgroup/yzma v1.31.0
	github.com/jupiterrider/ffi v0.8.0
	github.com/learning-to-screen/l2s v0.0.0-00010101000000-000000000000
	github.com/rs/cors v1.11.1
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	golang.org/x/sys v0.42.0
	pgregory.net/rapid v1.3.0
)

require (
	github.com/klauspost/cpuid/v2 v2.4.2 // indirect
	golang.org/x/text v0.35.0 // indirect
)

replace github.com/learning-to-screen/l2s => ../
