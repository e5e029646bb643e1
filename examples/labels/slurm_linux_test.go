package labels

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// slurm is a Slurm of this machine alone: its daemons listen on loopback, and keep all
// that they write in one folder.
type slurm struct {
	dir string
	env []string // of its clients
}

// The socket of munged answers all users, the key is for its own; jobs are known for
// five minutes after their end, and a requeued one starts after five seconds.
const slurmConf = `
ClusterName=l2s
SlurmctldHost=%[2]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmdPort=%[4]d
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge/socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd.pid
MinJobAge=300
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
DependencyParameters=kill_invalid_depend
NodeName=%[2]s NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
`

// startSlurm starts munged, slurmctld and slurmd. They end with the test, whether it passes or
// fails.
func startSlurm(t *testing.T) *slurm {
	t.Helper()
	// The system kills the daemons with the thread that has started them.
	runtime.LockOSThread()
	s := &slurm{dir: t.TempDir()}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	key := make([]byte, 128)
	rand.Read(key)
	conf := filepath.Join(s.dir, "slurm.conf")
	for _, err := range []error{
		os.Chmod(filepath.Dir(s.dir), 0o755), os.Chmod(s.dir, 0o755), // munged trusts no folder that others can write
		os.Mkdir(s.path("munge"), 0o711), os.Mkdir(s.path("state"), 0o700), os.Mkdir(s.path("spool"), 0o755),
		os.WriteFile(s.path("munge/key"), key, 0o400),
		os.WriteFile(conf, fmt.Appendf(nil, slurmConf, s.dir, host, freePort(t), freePort(t)), 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s.env = append(os.Environ(), "SLURM_CONF="+conf)
	t.Cleanup(func() { s.killRest(t) }) // after the daemons
	s.daemon(t, "munged", "--foreground", "--socket="+s.path("munge/socket"), "--key-file="+s.path("munge/key"),
		"--log-file="+s.path("munged.log"), "--pid-file="+s.path("munged.pid"), "--seed-file="+s.path("munge/seed"))
	s.await(t, "munged", func() bool { _, err := os.Stat(s.path("munge/socket")); return err == nil })
	s.daemon(t, "slurmctld", "-D", "-f", conf, "-L", s.path("slurmctld.log"))
	s.daemon(t, "slurmd", "-D", "-f", conf, "-L", s.path("slurmd.log"))
	s.await(t, "an idle node", func() bool {
		out, err := s.command("sinfo", "-h", "-o", "%T").Output()
		return err == nil && strings.TrimSpace(string(out)) == "idle"
	})
	return s
}

func (s *slurm) path(name string) string { return filepath.Join(s.dir, name) }

// freePort is a port of loopback that nobody listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *slurm) daemon(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			log, _ := os.ReadFile(s.path(name + ".log"))
			t.Logf("%s: %s%s", name, out.Bytes(), log)
		}
	})
}

// killRest kills the remaining processes of jobs: all processes with the folder in their
// environment.
func (s *slurm) killRest(t *testing.T) {
	for pid := range processes(t) {
		env, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if pid != os.Getpid() && bytes.Contains(env, []byte("SLURM_CONF="+s.dir)) {
			t.Logf("killed process %d, which was left", pid)
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// processes returns the processes of the machine, by their ids, with their arguments.
func processes(t *testing.T) map[int][]string {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	all := map[int][]string{}
	for _, name := range names {
		line, err := os.ReadFile(name)
		pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
		if err == nil {
			all[pid] = strings.Split(string(line), "\x00")
		}
	}
	return all
}

func (s *slurm) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	return cmd
}

// await waits for something that happens soon, if all daemons work.
func (s *slurm) await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !happened(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// recipe is the code of a section of docs/labels.md.
func recipe(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(docs, "labels.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var code []string
	for line := range strings.Lines(section) {
		if c, ok := strings.CutPrefix(line, "    "); ok {
			code = append(code, c)
		}
	}
	if code == nil {
		t.Fatalf("docs/labels.md: %s: found no code", heading)
	}
	return strings.Join(code, "")
}

// The recipe of the document runs: one task is killed and queued again, and the merged labels have
// the bytes of a run without shards.
func TestTheSlurmRecipe(t *testing.T) {
	if os.Getenv("L2S_SLURM") == "" {
		t.Skip("starts daemons: run make slurm")
	}
	if os.Getuid() != 0 {
		t.Skip("not root, which slurmd has to be")
	}
	for _, name := range []string{"munged", "slurmctld", "slurmd", "sbatch"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("Slurm is not installed: %v", err)
		}
	}
	c := newCorpus(t, 10000, 64, 32000)
	s := startSlurm(t)
	script, err := os.ReadFile(filepath.Join(docs, "labels.sbatch"))
	if err == nil {
		err = os.WriteFile(c.path("labels.sbatch"), script, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	submit := s.command("sh", "-ec", recipe(t, "Slurm"))
	submit.Dir, submit.Env = c.dir, append(s.env, "PATH="+filepath.Dir(c.l2s)+":"+os.Getenv("PATH"))
	if out, err := submit.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { s.command("scancel", "--user=root").Run() }) // before the daemons end

	var killed string
	s.await(t, "a task to kill", func() bool {
		for pid, args := range processes(t) {
			if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); exe == c.l2s && len(args) > 1 && args[1] == "labels" && syscall.Kill(pid, syscall.SIGKILL) == nil {
				killed = args[slices.Index(args, "--shard")+1]
				return true
			}
		}
		return false
	})
	t.Logf("killed shard %s", killed)
	s.await(t, "the jobs to end", func() bool {
		out, err := s.command("squeue", "-h").Output()
		return err == nil && len(bytes.TrimSpace(out)) == 0
	})
	out, err := s.command("scontrol", "show", "job", "-o").Output()
	if err != nil {
		t.Fatal(err)
	}
	field := func(job, name string) string {
		if m := regexp.MustCompile(`\b` + name + `=(\S+)`).FindStringSubmatch(job); m != nil {
			return m[1]
		}
		return ""
	}
	tasks, merges := 0, 0
	for job := range strings.Lines(string(out)) {
		want, task := "0", field(job, "ArrayTaskId")
		if task+"/16" == killed {
			want = "1"
		}
		if task == "" {
			merges++
		} else {
			tasks++
		}
		if state, restarts := field(job, "JobState"), field(job, "Restarts"); state != "COMPLETED" || restarts != want {
			t.Errorf("task %q: found state %s after %s restarts, expected COMPLETED after %s", task, state, restarts, want)
		}
	}
	if tasks != 16 || merges != 1 {
		t.Errorf("found %d tasks and %d merges, expected 16 and 1", tasks, merges)
	}
	if t.Failed() {
		logs, _ := filepath.Glob(c.path("slurm-*.out"))
		for _, name := range logs {
			text, _ := os.ReadFile(name)
			t.Logf("%s: %s", filepath.Base(name), text)
		}
		return
	}
	c.check(t, c.path("H.labels"))
}
