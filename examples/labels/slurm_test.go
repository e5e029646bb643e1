//go:build unix

package labels

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs stand in for Slurm, which runs the tasks of an array in turn and requeues a task that
// asks for it, and for a node that kills the first run of shard 5.
var programs = map[string]string{
	"sbatch": `
if [ "$1" = --parsable ]; then
	last=$(sed -n 's/^#SBATCH --array=0-//p' "$2")
	for i in $(seq 0 "$last"); do
		restarts=0
		until SLURM_CPUS_PER_TASK=2 SLURM_ARRAY_TASK_ID=$i SLURM_JOB_ID=7$i SLURM_RESTART_COUNT=$restarts sh "$2" >>slurm.out 2>&1; do
			[ "$(cat requeue)" = 7$i ]
			rm requeue
			restarts=$((restarts+1))
		done
	done
	echo 7
else
	[ "$1" = --dependency=afterok:7 ] && [ "$2" = --wrap ]
	sh -c "$3" >>slurm.out 2>&1
fi`,
	"scontrol": `[ "$1" = requeue ]; echo "$2" >requeue`,
	"l2s": `
case "$*" in *"--shard 5/"*) [ -e killed ] || { touch killed; kill -9 $$; } ;; esac
exec l2s.real "$@"`,
}

// The recipe of the document runs: one task is killed and queued again, and the merged labels have
// the bytes of a run without shards.
func TestTheSlurmRecipe(t *testing.T) {
	c := newCorpus(t, 500, 16, 1000)
	bin := filepath.Dir(c.l2s)
	err := os.Rename(c.l2s, filepath.Join(bin, "l2s.real"))
	for name, text := range programs {
		if err == nil {
			err = os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nset -e\n"+text+"\n"), 0o755)
		}
	}
	script, scriptErr := os.ReadFile(filepath.Join(docs, "labels.sbatch"))
	text, textErr := os.ReadFile(filepath.Join(docs, "labels.md"))
	if err == nil {
		err = os.WriteFile(c.path("labels.sbatch"), script, 0o644)
	}
	if err != nil || scriptErr != nil || textErr != nil {
		t.Fatal(err, scriptErr, textErr)
	}
	_, section, _ := strings.Cut(string(text), "\n## Slurm\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var recipe strings.Builder
	for line := range strings.Lines(section) {
		if code, ok := strings.CutPrefix(line, "    "); ok {
			recipe.WriteString(code)
		}
	}
	cmd := exec.Command("sh", "-ec", recipe.String())
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil || recipe.Len() == 0 {
		log, _ := os.ReadFile(c.path("slurm.out"))
		t.Fatalf("%q: %v: %s%s", recipe.String(), err, out, log)
	}
	if _, err := os.Stat(c.path("killed")); err != nil {
		t.Error("found no task that was killed")
	}
	c.l2s = filepath.Join(bin, "l2s.real")
	c.check(t, c.path("H.labels"))
}
