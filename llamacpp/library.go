package llamacpp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/hybridgroup/yzma/pkg/llama"
	"github.com/hybridgroup/yzma/pkg/loader"
)

// Load loads llama.cpp's libraries from a folder, or from the folder in the environment variable
// YZMA_LIB if folder is empty, and keeps the log of llama.cpp for the errors of this package. A
// program that has loaded them by yzma does not need it. The libraries stay loaded.
func Load(folder string) error {
	loading.Do(func() { loadError = load(folder) })
	return loadError
}

var (
	loading   sync.Once
	loadError error
)

// errNoFolder names the ways to the libraries that docs/gguf.md has.
var errNoFolder = errors.New("llamacpp: found no folder of llama.cpp's libraries, expected its name in YZMA_LIB or after --lib: `yzma install --lib FOLDER` fetches them (go install github.com/hybridgroup/yzma@v1.31.0), an archive of https://github.com/ggml-org/llama.cpp/releases has them (libllama.so, libggml*.so), and cmake -DBUILD_SHARED_LIBS=ON builds them")

func load(folder string) error {
	folder = loader.ResolvePath(folder)
	if folder == "" {
		return errNoFolder
	}
	file := loader.GetLibraryFilename(folder, "llama")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("llamacpp: %s: found no such library, expected llama.cpp's libraries in that folder (https://yzma.ai/getting-started/install)", file)
	}
	if err := llama.Load(folder); err != nil {
		return fmt.Errorf("llamacpp: %s: found libraries that yzma v1.31.0 does not load, expected libraries of llama.cpp v0.8.0: %w", folder, err)
	}
	if err := base.load(); err != nil {
		return err
	}
	llama.LogSet(purego.NewCallback(keepLog))
	return llama.Init()
}

// ggml's own functions, which yzma does not have.
type ggmlBase struct {
	once      sync.Once
	err       error
	tensorGet uintptr // ggml_backend_tensor_get
	nbytes    uintptr // ggml_nbytes
	evaluated uintptr // the evaluation callback, in C
}

var base ggmlBase

func (b *ggmlBase) load() error {
	b.once.Do(func() { b.err = b.find() })
	return b.err
}

// A tensor of ggml has its name at an offset, which ggml_get_name adds to the address and
// which no other function tells.
const (
	maxNameOffset = 4096
	nameBytes     = 64 // GGML_MAX_NAME
)

func (b *ggmlBase) find() error {
	folder := llama.LibPath()
	if folder == "" {
		return errors.New("llamacpp: found no libraries of llama.cpp, expected Load, or yzma's, before")
	}
	lib, err := loader.Open(loader.GetLibraryFilename(folder, "ggml-base"))
	if err != nil {
		return fmt.Errorf("llamacpp: %w", err)
	}
	var getName uintptr
	for name, at := range map[string]*uintptr{"ggml_backend_tensor_get": &b.tensorGet, "ggml_nbytes": &b.nbytes, "ggml_get_name": &getName} {
		if *at, err = lib.Get(name); err != nil {
			return fmt.Errorf("llamacpp: %s: ggml-base: found no function %s, expected it: %w", folder, name, err)
		}
	}
	var room [2 * maxNameOffset]byte
	address := uintptr(unsafe.Pointer(&room))
	name, _, _ := purego.SyscallN(getName, address)
	if nameOffset = name - address; nameOffset == 0 || nameOffset > maxNameOffset {
		return fmt.Errorf("llamacpp: %s: ggml-base: found the name of a tensor at offset %d, expected 1 to %d", folder, nameOffset, maxNameOffset)
	}
	goCallback = purego.NewCallback(evaluated)
	b.evaluated = throughFilter(goCallback)
	return nil
}

// The filter in assembly reads these, too.
var (
	nameOffset uintptr
	goCallback uintptr
)

// nameOf is the name of a tensor.
func nameOf(tensor uintptr) string {
	name := unsafe.Slice((*byte)(at(tensor+nameOffset)), nameBytes)
	text, _, _ := strings.Cut(string(name), "\x00")
	return text
}

// at is memory of C, which the collector does not move.
func at(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// read appends a tensor of float32 to dst, from any device.
func (b *ggmlBase) read(dst []float32, tensor uintptr) []float32 {
	bytes, _, _ := purego.SyscallN(b.nbytes, tensor)
	n, before := int(bytes/4), len(dst)
	if n == 0 {
		return dst
	}
	for cap(dst) < before+n {
		dst = append(dst[:cap(dst)], 0)
	}
	dst = dst[:before+n]
	purego.SyscallN(b.tensorGet, tensor, uintptr(unsafe.Pointer(&dst[before])), 0, uintptr(n)*4)
	return dst
}

// Callbacks are never freed, so one callback is used for all hooks: a number identifies a hook,
// which C passes back.
var (
	hooks    sync.Map // uintptr to *Hook
	lastHook atomic.Uintptr
)

// evaluated is ggml_backend_sched_eval_callback. If ask is true it reports whether the node is
// wanted. Otherwise the node is wanted and computed, and it reports whether to continue.
func evaluated(tensor uintptr, ask bool, number uintptr) bool {
	k, ok := hooks.Load(number)
	if !ok {
		return !ask
	}
	hook := k.(*Hook)
	switch nameOf(tensor) {
	case "result_norm":
		if !ask {
			hook.states = base.read(hook.states, tensor)
			return hook.whole
		}
		return true
	case "result_output":
		hook.headAsked = true
	}
	return !ask
}

// The last lines that llama.cpp has logged as errors.
var logged struct {
	sync.Mutex
	lines []string
}

const levelError = 4 // GGML_LOG_LEVEL_ERROR

func keepLog(level int32, text, _ uintptr) uintptr {
	if level != levelError || text == 0 {
		return 0
	}
	var line []byte
	for ; len(line) < 300; text++ {
		c := *(*byte)(at(text))
		if c == 0 {
			break
		}
		line = append(line, c)
	}
	if s := strings.TrimSpace(string(line)); s != "" {
		logged.Lock()
		logged.lines = append(logged.lines[max(0, len(logged.lines)-3):], s)
		logged.Unlock()
	}
	return 0
}

// takeLog returns the log since the last call, in one line.
func takeLog() string {
	logged.Lock()
	defer logged.Unlock()
	text := strings.Join(logged.lines, "; ")
	logged.lines = nil
	return text
}
