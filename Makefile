# The two commands to know: `make demo` and `make test`. `make help` lists all.

GO         ?= go
OPERATIONS := argmax axpy blocks exp gather int8 prefetch preview quantize ref scan topk widen
TIME       ?= 10s
DEMO       := benchmarks/lm/model

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { \
		line = sprintf("%-19s", $$1); n = split($$2, words, " "); \
		for (i = 1; i <= n; i++) { \
			if (length(line) + length(words[i]) >= 120) { print line; line = sprintf("%-19s", "") } \
			line = line " " words[i] \
		} \
		print line }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Train and measure a screen on the small language model of benchmarks/lm/model.
	scripts/demo $(DEMO) bin/demo

.PHONY: build
build: ## Build the command to bin/l2s.
	$(GO) build -o bin/l2s ./cmd/l2s

# Two targets at the same time: much of the work has one thread. APART keeps the output of each in
# one piece, if make can (GNU make 4).
BESIDE := $(MAKE) --no-print-directory -j2
APART  := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

# Lint has vetted these packages: -vet=off saves a second pass.
.PHONY: test
test: lint ## Run lint and the tests of the module, natively: two minutes on two cores, less the second time.
	$(GO) test -vet=off -timeout 30m ./...

# vet-all vets these.
.PHONY: test-modules
test-modules: check-generate ## Check the generated assembly, and run the tests of gen, benchmarks and examples.
	cd gen && $(GO) test -timeout 40m -vet=off ./...
	cd benchmarks && $(GO) test -timeout 40m -vet=off $(OPENBLAS) ./...
	cd examples && $(GO) test -timeout 40m -vet=off -mod=readonly ./...

# Small faults of distributions, for which make test draws too few samples.
.PHONY: test-draws
test-draws: ## Run the tests of package sample that count draws with four times as many.
	$(GO) test -timeout 40m -vet=off -count=1 -run 'HaveTheDistribution|IntervalsAtTheLimits|AnAllowedVariation' ./sample -draws 20000

.PHONY: test-long
test-long: ## Run an audit and a head that learns over the contexts of a language model of ../shared/data, for some minutes.
	$(GO) test -timeout 40m ./internal/watch/audit -run AuditOfALanguageModel -v -count=1 -args -long
	$(GO) test ./learn -run 'Replay|ALongTime' -v -count=1 -timeout 30m -args -long

.PHONY: test-llama
test-llama: ## Run the tests against llama.cpp's libraries, of YZMA_LIB or fetched by ../shared/llama/get, if they can be had.
	@echo "The first test says if llama.cpp cannot be had, and what is missing; all that need it are skipped then."
	cd llamacpp && $(GO) test -timeout 40m -vet=off -mod=readonly -count=1 -v -run TestTheHeadIsTheModels .
	cd llamacpp && $(GO) test -timeout 40m -vet=off -mod=readonly -count=1 ./...

.PHONY: test-kubernetes
test-kubernetes: ## Check the Job of docs/labels.md by the types of Kubernetes, which take long to compile.
	cd examples && $(GO) test -timeout 40m -tags kubernetes -mod=readonly ./labels

# These compute for minutes without assembly, by the same Go code and to the same bits: the tests of
# kernels and searches compare both, on every level. So only their tests whose bits are written down
# run, or that compare runs with each other.
MINUTES := l2s/(cmd/l2s|learn|preview|preview/internal/making|sample|train)$$
PINNED  := -run 'TestGoldenScreens|SameBits|TestEqualRunsGiveEqualBytes|TestModelsAndAnswersAreTheSameEverywhere' ./train ./preview/internal/making

.PHONY: test-purego
test-purego: ## Run the tests without assembly, of trainings those whose bits are known.
	$(GO) build -tags purego ./...
	L2S_BEST=generic $(GO) test -vet=off -tags purego -short -timeout 40m \
		$$($(GO) list ./... | grep -vE '$(MINUTES)')
	L2S_BEST=generic $(GO) test -vet=off -tags purego -short -timeout 40m $(PINNED)

# The parts that run in parallel without disturbing each other, the longest first.
LEGS = race fuzz $(LEVELS) test-purego test-modules test-native vet-all test-draws compare-quick test-kubernetes test-llama test-capi test-python builds golden static

.PHONY: check
check: test pauses load-short soak-short real-short clients ## Run make test and all other checks: levels, -race, builds, pauses, a load, a soak, a real head, clients of the server, fuzzing.
	@$(BESIDE) $(APART) $(LEGS) TIME=20000x
	@echo "make check: all passed"

# The packages that the kernels' levels matter to. A test whose level L2S_SIMD forces
# runs on that level alone, and fails if it is not on it.
PORTABLE := ./internal/ground/simd ./internal/codes/kernels ./internal/codes/encode ./internal/codes/floats ./internal/search/exact . ./internal/search/screening ./internal/search/logsum ./screen
ONE_LEVEL := $(GO) test -vet=off -count=1 -short -timeout 60m

.PHONY: test-native
test-native: build ## Run the kernels' tests on each level that this machine has.
	@set -e; for level in generic avx2 avx512 neon neondot; do \
		if L2S_SIMD=$$level bin/l2s version >/dev/null 2>&1; then \
			echo "level $$level"; L2S_SIMD=$$level $(ONE_LEVEL) $(PORTABLE); \
		else echo "level $$level: this machine does not have it"; fi; \
	done

# The packages that share memory between goroutines, or their tests do. Their longest tests that have
# one goroutine are left out.
ONE_GOROUTINE := -skip 'TestNothingIsTouchedOutsideTheSlices|TestManyRowsAndLongRows|TestKernelsAtEveryLength|TestEveryKernelStopsBetweenItsCalls|TestBlockBoundsHoldTheLogits|TestScanOfManyShortRows|TestBatchOverManyTilesEqualsSingles|TestColdSumsAreOfLogits|TestEditsFarIntoACap'
CONCURRENT = $(GO) list -f '{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}' ./... | \
	grep -E '[[ ](sync|sync/atomic|[^ ]*internal/ground/parallel)[] ]' | cut -d' ' -f1

.PHONY: race
race: ## Run the tests that have concurrency under the race detector, which needs a C compiler.
	$(GO) test -vet=off -race -short -timeout 40m $(ONE_GOROUTINE) $$($(CONCURRENT))
	cd capi && $(GO) test -timeout 40m -vet=off -race -mod=readonly -skip NoAllocation .
	cd benchmarks && $(GO) test -timeout 40m -vet=off -race -short ./internal/inorder ./internal/lstm ./internal/marian
	cd examples && $(GO) test -timeout 40m -vet=off -race -short -mod=readonly ./serve -load-requests 20

.PHONY: builds
builds: ## Build for the other architectures and systems.
	@set -e; for target in linux/amd64 linux/arm64 linux/riscv64 linux/386 darwin/arm64 windows/amd64; do \
		echo "build $$target"; GOOS=$${target%/*} GOARCH=$${target#*/} $(GO) build ./...; \
	done
	@echo "build js/wasm"; GOOS=js GOARCH=wasm $(GO) build ./kernels . ./screen ./train ./bitset

.PHONY: pauses
pauses: ## Print how long the collector waits for kernels at work on a layer of 262,144 x 640.
	L2S_LARGE=1 $(GO) test -timeout 40m -count=1 -run 'TestTheCollectorComesBetween' -v ./internal/codes/kernels

.PHONY: kills
kills: ## Kill L2S_KILLS (200) trainings, as many saves, and as many heads that learn.
	L2S_KILLS=$${L2S_KILLS:-200} $(GO) test -count=1 -timeout 60m -run 'SurvivesAKill' -v ./cmd/l2s ./internal/search/screening ./learn

# The CPUs that are emulated. Two tests are left out under qemu: the test of memory limits on
# amd64, since qemu reads memory that a masked load must not read (arm64 has none), and the test of a file
# that is cut off, since qemu reports no address of a fault. So are the examples, which ask what the
# tests of laws ask.
EMULATE  := $(CURDIR)/scripts/qemu
LEVELS   := haswell nehalem cortex-a72 neoverse-n1 max arm64-purego
ADDRESSED := -skip 'TestRowsThatAreGoneAreAFaultOfTheCaller|^Example'
UNMASKED := -skip 'TestNothingIsTouchedOutsideTheSlices|TestRowsThatAreGoneAreAFaultOfTheCaller|^Example'
TRAINED  := -run TestGoldenScreens ./train

.PHONY: test-levels emulators $(LEVELS)
test-levels: emulators ## Run the kernels' tests and train screens on emulated CPUs: with AVX2, with neither, and arm64 with and without dot products.
	@$(BESIDE) $(APART) $(LEVELS)

emulators:
	$(EMULATE) --install

haswell: EMULATED = L2S_SIMD=avx2 L2S_BEST=avx2 $(ONE_LEVEL) $(UNMASKED) -exec "$(EMULATE) x86_64 -cpu Haswell"
nehalem: EMULATED = L2S_BEST=generic $(ONE_LEVEL) $(UNMASKED) -exec "$(EMULATE) x86_64 -cpu Nehalem"
cortex-a72: EMULATED = GOARCH=arm64 L2S_SIMD=neon L2S_BEST=neon $(ONE_LEVEL) $(ADDRESSED) -exec "$(EMULATE) aarch64 -cpu cortex-a72"
neoverse-n1: EMULATED = GOARCH=arm64 L2S_SIMD=neondot L2S_BEST=neondot $(ONE_LEVEL) $(ADDRESSED) -exec "$(EMULATE) aarch64 -cpu neoverse-n1"
max: EMULATED = GOARCH=arm64 L2S_SIMD=neondot L2S_BEST=neondot+i8mm $(ONE_LEVEL) $(ADDRESSED) -exec "$(EMULATE) aarch64 -cpu max"
arm64-purego: EMULATED = GOARCH=arm64 L2S_BEST=generic $(ONE_LEVEL) $(ADDRESSED) -tags purego -exec "$(EMULATE) aarch64"

$(LEVELS): emulators
	$(EMULATED) $(PORTABLE)
	$(EMULATED) $(TRAINED)

.PHONY: lint
lint: ## Check formatting, go.mod, and go vet.
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "gofmt: $$files"; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) vet ./...

.PHONY: static
static: ## Run staticcheck and govulncheck on all modules, if they can be had.
	GO=$(GO) scripts/static

.PHONY: vet-all
vet-all: ## Run go vet in the other modules and for other architectures.
	GOARCH=386 $(GO) vet ./...
	GOARCH=arm64 $(GO) vet ./...
	GOOS=js GOARCH=wasm $(GO) vet ./internal/codes/kernels ./kernels/... ./internal/search/exact ./internal/search/screening ./internal/watch/audit . ./screen ./train
	cd gen && $(GO) vet ./...
	cd benchmarks && $(GO) vet ./...
	cd examples && $(GO) vet -tags kubernetes -mod=readonly ./...
	cd capi && $(GO) vet -mod=readonly .
	cd llamacpp && $(GO) vet -mod=readonly ./... && GOARCH=arm64 $(GO) vet -mod=readonly . && GOOS=windows $(GO) vet -mod=readonly .

# Where generate writes, from gen.
ASM ?= ../kernels/asm

.PHONY: generate
generate: ## Rewrite the assembly in kernels/asm from the programs in gen.
	@mkdir -p bin/gen
	@cd gen && $(GO) build -ldflags="-s -w" -o ../bin/gen/ $(addprefix ./,$(OPERATIONS) neon together dispatch)
	@set -e; cd gen; for op in $(OPERATIONS); do \
		../bin/gen/$$op -out $(ASM)/$${op}_amd64.s -stubs $(ASM)/$${op}_amd64.go -pkg asm; \
		sed -i "1s|.*|// Code generated by gen/$$op. DO NOT EDIT.|" $(ASM)/$${op}_amd64.s $(ASM)/$${op}_amd64.go; \
	done; \
	../bin/gen/neon -out $(ASM); \
	../bin/gen/dispatch -dir $(ASM); \
	../bin/gen/together -dir $(ASM)

.PHONY: check-generate
check-generate: ## Fail if kernels/asm differs from the output of gen.
	@set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(MAKE) -s generate ASM="$$tmp"; \
	(cd kernels/asm && ls *_*64.* *_noasm.*) >"$$tmp/have"; (cd "$$tmp" && ls *_*64.* *_noasm.*) >"$$tmp/want"; \
	cmp "$$tmp/have" "$$tmp/want"; \
	while read -r f; do cmp "kernels/asm/$$f" "$$tmp/$$f" || { echo "kernels/asm/$$f differs from the output of gen: run make generate"; exit 1; }; done <"$$tmp/want"

.PHONY: fuzz
fuzz: ## Run every fuzz target in turn, for TIME=10s or TIME=20000x each.
	GO=$(GO) scripts/fuzz $(TIME)

# The folder of models and texts that are not part of this repository: ptb-small, an LSTM
# language model, and llm-65k, a language model's head.
DATA ?= ../shared/data
# own is a flag of a program of benchmarks for another folder DATA; they know the default.
own = $(if $(filter-out ../shared/data,$(DATA)),$(1) $(abspath $(DATA))/$(2))
# there fails if a file is missing, and tells what to do instead.
there = @[ -e "$(1)" ] || { echo "found no $(1), which is not part of l2s; DATA=FOLDER names the folder of your own models. $(2)" >&2; exit 1; }

# The layer and the contexts of the load.
PTB      := $(DATA)/ptb-small/model.safetensors
QUERIES  ?= 10000000

.PHONY: load
load: bin/ptb/m.l2s ## Ask the PTB screen 10 million times from 2 goroutines and check every answer.
	cd benchmarks && $(GO) run ./load -weights $(abspath $(PTB)):decoder.weight -bias $(abspath $(PTB)):decoder.bias \
		-contexts ../bin/ptb/test.npy -screen ../bin/ptb/m.l2s -queries $(QUERIES)

bin/ptb/m.l2s:
	$(call there,$(PTB),make load-short asks the model of make demo.)
	$(MAKE) train-ptb

.PHONY: load-short
load-short: demo ## The same with 200,000 queries, on the model of make demo.
	cd benchmarks && $(GO) run ./load -weights ../$(DEMO)/model.safetensors:encoder.weight -bias ../$(DEMO)/model.safetensors:decoder.bias \
		-contexts ../bin/demo/test.npy -screen ../bin/demo/m.l2s -queries 200000

.PHONY: service-load
service-load: ## Put the example service under the load of 4 clients on loopback, with ten swaps.
	cd examples && $(GO) test -timeout 40m -mod=readonly -count=1 -v ./serve -run TestTheProgramUnderLoad -load-requests 10000

.PHONY: capi
capi: ## Build libl2s.so and l2s.h, for programs in C, to bin/capi. Needs a C compiler.
	GO=$(GO) capi/build bin/capi

.PHONY: test-capi
test-capi: ## Run the tests of libl2s.so in C, also under gcc's sanitizers, and the examples in C and Rust; skipped without a C compiler.
	GO=$(GO) capi/test/run bin/capi

.PHONY: wheel
wheel: ## Build the wheel of the package l2s for Python to bin/wheel. Needs a C compiler and PyPI.
	GO=$(GO) capi/python/wheel bin/wheel

.PHONY: test-python
test-python: ## Install the wheel into an empty virtual environment and run its tests; skipped without a C compiler, Python or PyPI. WITH="torch transformers" tests those too; PYTHONS="python3.9 python3.13".
	GO=$(GO) WITH="$(WITH)" PYTHONS="$(PYTHONS)" capi/python/test bin/wheel

.PHONY: bench-capi
bench-capi: ## Print what calls from C and from Python cost beyond Go's, in turns, after make test-capi test-python. CALLS="-head m.gguf -index m.l2p -contexts H.npy".
	cd capi && $(GO) run -mod=readonly ./bench -c $(CURDIR)/bin/capi/test -python $(CURDIR)/bin/wheel/venv/bin/python $(CALLS)

# The bridge takes part if there are a model and llama.cpp's libraries.
SOAK     ?= 1h
SOAKED   := $(DATA)/llm-65k-gguf/llm-65k.q8_0.gguf
YZMA_LIB ?= $(if $(wildcard bin/llama/ready),bin/llama)

.PHONY: soak
soak: ## Run a learner, tails, a service, libl2s.so, commands that are killed, a full disk, the bridge and its server at the same time for SOAK=1h, all attacked.
	@mkdir -p bin/soak
	$(GO) build -o bin/soak/ ./cmd/l2s ./fuzz/soak
	cd examples && $(GO) build -mod=readonly -o ../bin/soak/ ./serve
	cd llamacpp && $(GO) build -mod=readonly -o ../bin/soak/ ./cmd/l2s-llama
	@if command -v $(CC) >/dev/null; then GO=$(GO) capi/build bin/soak/capi && $(CC) -std=gnu11 -O1 -g -Icapi capi/test/test.c \
		-o bin/soak/capi/test -Lbin/soak/capi -ll2s -lm -lpthread -ldl -Wl,-rpath,$(CURDIR)/bin/soak/capi; fi
	bin/soak/soak -time $(SOAK) -bin bin/soak -lib "$(abspath $(YZMA_LIB))" -gguf "$(wildcard $(SOAKED))"

.PHONY: soak-short
soak-short: ## The same for a minute and a half.
	$(MAKE) soak SOAK=90s

# REAL=FOLDER has the models already, YZMA_LIB=FOLDER the libraries.
.PHONY: real
real: ## Measure the heads of Gemma 3 270M and SmolLM2, exact, drawn, previewed, and in llama.cpp, if they can be fetched.
	REAL="$(REAL)" YZMA_LIB="$(abspath $(YZMA_LIB))" scripts/real

.PHONY: real-peers
real-peers: ## Measure l2s and libraries of nearest neighbours from PyPI, by their Python packages, on Gemma's head (NAMES) and a made-up layer; building takes an hour.
	REAL="$(REAL)" YZMA_LIB="$(abspath $(YZMA_LIB))" NAMES="$(NAMES)" scripts/real --peers

.PHONY: real-kinds
real-kinds: ## Measure the previews of these models on own states of labels (OWN=all: of every label), and on 49 kinds of text, one by one.
	REAL="$(REAL)" YZMA_LIB="$(abspath $(YZMA_LIB))" scripts/real --kinds

.PHONY: real-short
real-short: ## The same for SmolLM2 alone, with fewer states, in two minutes.
	REAL="$(REAL)" YZMA_LIB="$(abspath $(YZMA_LIB))" scripts/real --short

.PHONY: people
people: ## Measure turns of chats, chats of four clients at once, and 2,000 mixed requests of eight, on the models of REAL=FOLDER.
	cd llamacpp && REAL="$(abspath $(REAL))" YZMA_LIB="$(abspath $(YZMA_LIB))" $(GO) test -timeout 60m -count=1 -v -run 'TestReal(Turns|ChatsAtOnce|MixedRequests)' ./internal/openai -people

.PHONY: clients
clients: ## Ask l2s-llama serve by OpenAI's Python package, llm and curl, over SmolLM2, if they can be fetched, in two minutes.
	REAL="$(REAL)" YZMA_LIB="$(abspath $(YZMA_LIB))" scripts/clients

.PHONY: bench
bench: ## Run the Go benchmarks of the kernels and of whole queries.
	$(GO) test -run '^$$' -bench . -benchmem -timeout 60m ./internal/codes/kernels ./internal/search/screening ./internal/search/engine

# OpenBLAS joins where pkg-config finds it (Debian: libopenblas-dev).
OPENBLAS := $(shell pkg-config --exists openblas 2>/dev/null && echo -tags openblas)

.PHONY: peers
peers: ## Print the table of ratios to OpenBLAS, gonum, vek and plain Go.
	cd benchmarks && $(GO) run $(OPENBLAS) ./peers

.PHONY: predictions
predictions: ## Print the cycles that llvm-mca predicts for the loops on arm64 and with AVX2. Needs LLVM 17.
	cd gen && $(GO) run ./predict

.PHONY: train-ptb
train-ptb: ## Print the figures of benchmarks/LOG.md, from DATA/ptb-small (DATA=../shared/data).
	scripts/train-ptb $(DATA)/ptb-small bin/ptb

# LAYER names another layer: --weights SRC --bias SRC --contexts SRC, or --lm DIR.
.PHONY: compare
compare: ## Measure all methods of the paper on DATA/ptb-small, into benchmarks/results/ptb-small.
	cd benchmarks && $(GO) run $(OPENBLAS) ./compare $(call own,--lm,ptb-small) $(LAYER)

.PHONY: compare-full
compare-full: ## The same with finer sweeps, learning from all contexts.
	cd benchmarks && $(GO) run $(OPENBLAS) ./compare --full $(call own,--lm,ptb-small) $(LAYER)

.PHONY: compare-quick
compare-quick: ## Compare on the model of make demo in two minutes, into bin/compare-quick.
	cd benchmarks && $(GO) run $(OPENBLAS) ./compare --quick --demo --least 0.98 --out ../bin/compare-quick

.PHONY: translate
translate: ## Translate 1,000 sentences by Firefox's model with every head, into benchmarks/results, in five minutes, if it can be fetched.
	REAL="$(REAL)" scripts/translate

.PHONY: figures
figures: ## Write docs/figures.md and its pictures from benchmarks/results.
	cd benchmarks && $(GO) run ./figures

.PHONY: real-figures
real-figures: ## Measure these models (NAMES) with the preview of --fast, for docs/figures.md, into benchmarks/results.
	REAL="$(REAL)" YZMA_LIB="$(abspath $(YZMA_LIB))" NAMES="$(NAMES)" scripts/real --figures

.PHONY: golden
golden: ## Compare contexts of the model in ../shared/data with those of PyTorch, if it is there.
	cd benchmarks && $(GO) test -timeout 40m -count=1 -run Golden ./internal/lstm
