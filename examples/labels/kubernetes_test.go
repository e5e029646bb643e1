//go:build kubernetes

package labels

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func readJob(t *testing.T) *batch.Job {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(docs, "labels-job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	job := new(batch.Job)
	if err := yaml.UnmarshalStrict(data, job); err != nil {
		t.Fatal(err)
	}
	return job
}

// The file has no field that batch/v1 does not have, and fulfils Kubernetes's rules for an Indexed
// Job.
func TestTheJobIsOneOfBatchV1(t *testing.T) {
	job := readJob(t)
	if job.APIVersion != batch.SchemeGroupVersion.String() || job.Kind != "Job" || job.Name == "" {
		t.Errorf("found %s %s %q, expected a Job of %s with a name", job.APIVersion, job.Kind, job.Name, batch.SchemeGroupVersion)
	}
	spec := job.Spec
	if spec.CompletionMode == nil || *spec.CompletionMode != batch.IndexedCompletion || spec.Completions == nil || *spec.Completions < 1 {
		t.Fatalf("found completions %v of mode %v, expected a number of mode Indexed", spec.Completions, spec.CompletionMode)
	}
	if spec.Parallelism == nil || *spec.Parallelism < 1 || *spec.Parallelism > *spec.Completions {
		t.Errorf("parallelism: found %v, expected 1 to the %d completions", spec.Parallelism, *spec.Completions)
	}
	pod := spec.Template.Spec
	if spec.BackoffLimitPerIndex == nil || pod.RestartPolicy != core.RestartPolicyNever {
		t.Errorf("found backoffLimitPerIndex %v with the restart policy %q, expected one with Never, which it needs", spec.BackoffLimitPerIndex, pod.RestartPolicy)
	}
	if len(pod.Containers) != 1 {
		t.Fatalf("found %d containers, expected one", len(pod.Containers))
	}
	for _, m := range pod.Containers[0].VolumeMounts {
		if !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool { return v.Name == m.Name }) {
			t.Errorf("volumeMounts: found %q, expected the name of a volume", m.Name)
		}
	}
	memory := pod.Containers[0].Resources
	if memory.Requests.Memory().Cmp(*memory.Limits.Memory()) > 0 {
		t.Errorf("memory: found a request of %v above the limit %v", memory.Requests.Memory(), memory.Limits.Memory())
	}
	threads := "--threads=" + strconv.FormatInt(memory.Requests.Cpu().Value(), 10)
	if !slices.Contains(pod.Containers[0].Args, threads) {
		t.Errorf("args: found %q, expected %s as the CPUs requested", pod.Containers[0].Args, threads)
	}
}

var variable = regexp.MustCompile(`\$\(([A-Za-z_][A-Za-z0-9_]*)\)`)

// expand replaces $(NAME) as Kubernetes does: a variable that is not set is not changed.
func expand(text string, env map[string]string) string {
	return variable.ReplaceAllStringFunc(text, func(v string) string {
		if value, ok := env[v[2:len(v)-1]]; ok {
			return value
		}
		return v
	})
}

// The pods of the job, run one after the other on this machine in folders for the
// volume, label the whole corpus.
func TestThePodsLabelTheCorpus(t *testing.T) {
	job := readJob(t)
	c := newCorpus(t, 500, 16, 1000)
	container := job.Spec.Template.Spec.Containers[0]
	if len(container.VolumeMounts) != 1 {
		t.Fatalf("found %d mounts, expected one", len(container.VolumeMounts))
	}
	volume := container.VolumeMounts[0].MountPath + "/"
	if err := os.Mkdir(c.path("labels"), 0o755); err != nil {
		t.Fatal(err)
	}
	if command := container.Command; len(command) != 2 || command[0] != "l2s" {
		t.Fatalf("command: found %q, expected l2s and a verb", command)
	}
	for index := range int(*job.Spec.Completions) {
		env := map[string]string{"JOB_COMPLETION_INDEX": strconv.Itoa(index)} // which Kubernetes sets
		for _, e := range container.Env {
			env[e.Name] = expand(e.Value, env)
		}
		args := slices.Clone(container.Command[1:])
		for _, a := range container.Args {
			args = append(args, strings.ReplaceAll(expand(a, env), volume, c.dir+"/"))
		}
		c.run(t, c.l2s, args...)
	}
	parts, err := filepath.Glob(c.path("labels/part-*")) // as docs/labels.md merges them
	if err != nil || len(parts) != int(*job.Spec.Completions) {
		t.Fatalf("found %d parts, %v, expected %d", len(parts), err, *job.Spec.Completions)
	}
	c.run(t, c.l2s, append([]string{"merge", "--out", c.path("H.labels")}, parts...)...)
	c.check(t, c.path("H.labels"))
}
