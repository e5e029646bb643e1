package llamacpp

// known are the architectures whose head, in llama.cpp's source (src/models, v0.5.0), equals the
// head that package l2s reads from the file, applied to the node "result_norm": the matrix, a
// bias, a scale, a soft cap, and nothing between. By general.architecture of the file.
var known = map[string]bool{
	"apertus": true, "arcee": true, "arctic": true, "bailingmoe": true, "bailingmoe2": true,
	"bloom": true, "codeshell": true, "cohere2": true, "command-r": true, "dbrx": true,
	"deepseek": true, "deepseek2": true, "dots1": true, "ernie4_5": true, "ernie4_5-moe": true,
	"exaone": true, "exaone4": true, "falcon": true, "falcon-h1": true, "gemma": true,
	"gemma2": true, "gemma3": true, "glm4": true, "glm4moe": true, "gpt-oss": true, "gpt2": true,
	"gptneox": true, "granite": true, "granitemoe": true, "hunyuan-dense": true,
	"hunyuan-moe": true, "internlm2": true, "jamba": true, "lfm2": true, "llama": true,
	"llama4": true, "mamba": true, "mamba2": true, "mellum": true, "mimo2": true,
	"minicpm": true, "minimax-m2": true, "mistral3": true, "nemotron": true, "nemotron_h": true,
	"olmo": true, "olmo2": true, "olmoe": true, "orion": true, "phi2": true, "phi3": true,
	"phimoe": true, "plamo": true, "qwen": true, "qwen2": true, "qwen2moe": true,
	"qwen2vl": true, "qwen3": true, "qwen3moe": true, "qwen3next": true, "qwen35": true,
	"qwen35moe": true, "refact": true, "seed_oss": true, "smollm3": true, "stablelm": true,
	"starcoder": true, "starcoder2": true, "xverse": true,
}
