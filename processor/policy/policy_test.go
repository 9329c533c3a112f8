package policy_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluice-dev/sluice/internal/testkit"
	"github.com/sluice-dev/sluice/processor/policy"
	"github.com/sluice-dev/sluice/schemas"
)

func template(p *schemas.TemplatePolicy) *schemas.Template {
	return &schemas.Template{Name: "t", Policy: p}
}

func documents() *schemas.Template {
	return template(&schemas.TemplatePolicy{Name: schemas.PolicyDocuments})
}

// withoutRm allows everything but rm and curl.
func withoutRm() *schemas.Template {
	return template(&schemas.TemplatePolicy{Deny: []string{"rm", "curl*"}})
}

func check(t *schemas.Template, words ...string) error {
	return policy.New().Check(t, words[0], words[1:])
}

func wantAllowed(t *testing.T, tpl *schemas.Template, words ...string) {
	t.Helper()
	if err := check(tpl, words...); err != nil {
		t.Errorf("%q is refused: %v", words, err)
	}
}

func wantDenied(t *testing.T, tpl *schemas.Template, words ...string) {
	t.Helper()
	if err := check(tpl, words...); !errors.Is(err, schemas.ErrPolicyDenied) {
		t.Errorf("%q: error = %v, want policy_denied", words, err)
	}
}

func TestNoPolicyAllowsEverything(t *testing.T) {
	for _, one := range []*schemas.Template{template(nil), template(&schemas.TemplatePolicy{})} {
		for _, words := range [][]string{{"rm", "-rf", "/"}, {"sh", "-c", "$x; ((("}, {""}, {"./x"}} {
			wantAllowed(t, one, words...)
		}
	}
}

func TestDocumentsPolicy(t *testing.T) {
	good := [][]string{
		{"jq", "."}, {"/usr/bin/grep", "-r", "x"}, {"python3", "x.py"}, {"ls"}, {"find", ".", "-name", "*.md"},
		{"bash", "-c", "cat a.txt | sort | uniq -c | sort -rn | head -5 > top.txt"},
		{"/bin/sh", "-c", "for f in *.md; do wc -l \"$f\"; done"},
		{"bash", "-lc", "set -euo pipefail; cd docs && ls"},
		{"bash", "-o", "pipefail", "-c", "grep x y || true"},
		{"sh", "-c", "if [ -f a ]; then cat a; else echo none >&2; fi"},
		{"bash", "-c", "[[ -f a ]] && x=$(date) && echo \"$x\""},
		{"bash", "-c", "total() { awk '{s+=$1} END {print s}' \"$1\"; }; total a.txt"},
		{"sh", "-c", "find . -type f -exec grep -l x {} +"},
		{"sh", "-c", "cat <<'EOF'\nrm -rf /\nEOF"},
		{"sh", "-c", "echo 'rm -rf /' \"curl\" rm"},
		{"bash", "-c", "command -v rm"},
		{"bash", "-c", "echo $((1 + 2)); while read -r l; do echo \"$l\"; done < a"},
		{"sh", "-c", ""},
	}
	for _, words := range good {
		wantAllowed(t, documents(), words...)
	}
	bad := []struct {
		words            []string
		command, pattern string
	}{
		{[]string{"rm", "a"}, "rm", "rm"},
		{[]string{"/bin/rm", "a"}, "/bin/rm", "rm"},
		{[]string{"git", "push"}, "git", ""},
		{[]string{"./ls"}, "./ls", ""},
		{[]string{"/workspace/grep"}, "/workspace/grep", ""},
		{[]string{"bash", "-c", "ls && curl x"}, "curl", "curl"},
		{[]string{"bash", "script.sh"}, "bash", ""},
		{[]string{"xargs", "cat"}, "xargs", ""},
		{[]string{"sh", "-c", "git status"}, "git", ""},
	}
	for _, tt := range bad {
		t.Run(strings.Join(tt.words, " "), func(t *testing.T) {
			err := check(documents(), tt.words...)
			testkit.WantCode(t, err, schemas.CodePolicyDenied)
			e := schemas.AsError(err)
			testkit.Equal(t, "details", e.Details, map[string]string{"command": tt.command, "pattern": tt.pattern})
			for _, want := range []string{tt.command, tt.pattern} {
				if !strings.Contains(e.Message, want) {
					t.Errorf("message = %q, want it to name %q", e.Message, want)
				}
			}
		})
	}
}

func TestAllowAndDenyLists(t *testing.T) {
	one := template(&schemas.TemplatePolicy{Name: schemas.PolicyDocuments, Allow: []string{"git-*", "git", "/opt/tools/*", "env", "bash"}, Deny: []string{"git-push", "cat"}})
	for _, words := range [][]string{{"git", "status"}, {"git-log"}, {"/opt/tools/x/y"}, {"env", "ls"}, {"bash", "script.sh"}} {
		wantAllowed(t, one, words...)
	}
	for _, words := range [][]string{{"git-push"}, {"cat"}, {"/opt/tools/../../bin/x"}, {"/opt/tool"}, {"env", "cat"}, {"rm"}, {"env", "-S", "ls"}} {
		wantDenied(t, one, words...)
	}
}

// evasions returns shell lines that run rm, or might. A policy that denies rm must refuse each.
func evasions() []string {
	return []string{
		"rm x", "/bin/rm x", "/bin/../bin/rm x", "//bin//rm x", "./rm x", "\\rm x", "r\\m x", "'rm' x", "\"rm\" x", "r'm' x", "r\"\"m x", "r\\\nm x", "$'rm' x", "$'\\x72m' x", "$\"rm\" x",
		"ls; rm x", "ls && rm x", "ls || rm x", "ls | rm x", "ls & rm x", "! rm x", "ls |& rm x", "ls\nrm x", "time rm x", "time -p rm x",
		"(rm x)", "((rm x))", "{ rm x; }", "( ( rm x ) )", "echo $(rm x)", "echo `rm x`", "echo \"$(rm x)\"", "echo \"`rm x`\"", "echo ${y:-$(rm x)}", "echo $((1+$(rm x)))",
		"x=$(rm x)", "x=`rm x` ls", "x=1 rm x", "a=(1 $(rm x))", "cat <(rm x)", "cat > >(rm x)", "ls > $(rm x)", "ls < `rm x`", "cat <<E\n$(rm x)\nE", "cat <<< $(rm x)",
		"if rm x; then ls; fi", "if ls; then rm x; fi", "if ls; then ls; elif rm x; then ls; fi", "if ls; then ls; else rm x; fi", "while rm x; do ls; done", "until ls; do rm x; done",
		"for i in a; do rm x; done", "for i in $(rm x); do ls; done", "for ((i=$(rm x);;)); do ls; done", "case a in a) rm x;; esac", "case $(rm x) in a) ls;; esac", "select i in a; do rm x; done",
		"f() { rm x; }; f", "function f { rm x; }; f", "f() (rm x); f", "rm() { ls; }; rm", "[[ -n $(rm x) ]]", "[ -n \"$(rm x)\" ]", "let 'a=1' $(rm x)", "declare x=$(rm x)", "export x=`rm x`", "coproc rm x",
		"$x y", "${x} y", "\"$x\" y", "$(echo rm) x", "`echo rm` x", "r$x y", "r${x}m y", "$0 x", "\"$@\"", "r? x", "/bin/r* x", "/bin/[r]m x", "{rm,x}", "r{m,x}", "~/rm x", "@(rm) x", "!(rm x)", "+(rm)",
		"eval rm x", "eval 'rm x'", "eval \"r\"m x", "eval eval rm x", "eval $x", "eval \"$x\"", "eval -- rm x", "command rm x", "command -p rm x", "command -- rm x", "builtin eval rm x", "builtin command rm x", "exec rm x", "exec -a ls rm x", "exec -c rm x",
		"trap 'rm x' EXIT", "trap -- 'rm x' 0", "trap \"$x\" EXIT", ". ./script", "source script", "alias ls=rm", "alias y='rm x'", "hash -p /bin/rm ls", "enable -f x y", "mapfile -C 'rm x' a", "readarray -t -C rm a", "complete -C 'rm x' a", "bind -x '\"a\":rm'", "fc -s rm",
		"env rm x", "env A=1 rm x", "env -i rm x", "env -u A rm x", "env -uA rm x", "env --unset=A rm x", "env --unset A rm x", "env -C / rm x", "env -S 'rm x'", "env -S'rm x'", "env --split-string='rm x'", "env -vS 'rm x'", "env -- rm x", "env - rm x", "env $x", "env $x rm", "env A=$y rm", "/usr/bin/env rm x", "env env env rm x",
		"nohup rm x", "setsid -w rm x", "nice rm x", "nice -n 5 rm x", "nice -5 rm x", "nice --adjustment=5 rm x", "ionice -c2 -n 0 rm x", "timeout 5 rm x", "timeout -k 1 5 rm x", "timeout -s KILL 5 rm x", "timeout --signal=KILL 5 rm x", "timeout -- 5 rm x", "timeout $t rm x", "timeout \"$t\" rm x",
		"stdbuf -oL rm x", "stdbuf -o L rm x", "/usr/bin/time -f %e rm x", "busybox rm x", "toybox rm x", "busybox sh -c 'rm x'", "busybox --list rm", "xargs rm", "xargs -0 rm", "xargs -n1 rm", "xargs -n 1 rm", "xargs -I{} rm {}", "xargs -I{} {} x", "xargs -i {} x", "xargs --replace=X X y", "xargs -I X sh -c X", "xargs -a f rm", "xargs env", "xargs sh -c", "xargs nice", "xargs -d '\\n' rm", "xargs --max-args=1 rm", "xargs --frob rm",
		"find . -exec rm {} +", "find . -exec rm {} \\;", "find . -execdir rm {} ';'", "find . -ok rm {} \\;", "find . -exec {} \\;", "find . -exec sh -c 'rm x' \\;", "find . -exec env rm {} +", "find . -delete", "find . $x", "find . \"$x\" rm {} +", "find . -name a -exec ls {} \\; -exec rm {} \\;", "find . -exec sh -c {} \\;",
		"sh -c 'rm x'", "bash -c 'rm x'", "dash -c 'rm x'", "sh -ec 'rm x'", "sh -e -c 'rm x'", "bash -o pipefail -c 'rm x'", "bash +x -c 'rm x'", "bash -c -e 'rm x'", "bash -c -- 'rm x'", "bash -lc 'rm x'", "bash --norc -c 'rm x'", "bash --rcfile f -c ls", "bash --init-file f -ic ls", "bash -c \"$x\"", "bash $x", "bash \"$x\" ls", "sh -c \"sh -c 'rm x'\"", "sh -c '$0 x' rm", "sh -c '\"$@\"' x rm", "sh script", "sh < script", "echo 'rm x' | sh", "echo 'rm x' | sh -s", "sh <<E\nrm x\nE", "sh -", "ash -c 'rm x'", "rbash -c 'rm x'",
		"zsh -c 'rm x'", "ksh -c 'rm x'", "fish -c 'rm x'", "sudo rm x", "su -c 'rm x'", "chroot / rm x", "unshare rm x", "taskset 1 rm x", "flock f rm x", "watch rm x", "script -c 'rm x'", "strace rm x", "parallel rm ::: x", "ssh h rm x", "setpriv rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x", "docker run x", "run-parts d",
		"PATH=/tmp ls", "PATH=/tmp", "export PATH=/tmp", "declare -x PATH=/tmp", "export \"PATH=/tmp\"", "export $x", "read PATH", "printf -v PATH /tmp", "printf -vPATH /tmp", "for PATH in /tmp; do ls; done", "env PATH=/tmp ls", "LD_PRELOAD=x ls", "BASH_ENV=x bash -c ls", "ENV=x sh -c ls", "PS4='$(rm x)' ls", "PROMPT_COMMAND='rm x'", "IFS=x", "echo ${PATH:=/tmp}", "GIT_SSH_COMMAND='rm x' ls",
		"x='a[$(rm x)]'; echo $((x))", "x='$(rm x)'; echo ${x@P}", "x=`echo y`; echo ${x@P}", "exec 3<>/dev/tcp/h/80", "cat < /dev/tcp/h/80", "cat > \"/dev/udp/h/80\"", "unset -f ls", "exec 5<> '/dev/tcp/h/1'",
		"((", "if", "'", "echo $(", strings.Repeat("eval ", 100) + "ls", strings.Repeat("env ", 100) + "ls",
	}
}

func TestPolicyRefusesEvasions(t *testing.T) {
	for _, line := range evasions() {
		for _, shell := range []string{"sh", "bash"} {
			if shell == "bash" && line == "((rm x))" {
				continue // arithmetic in bash, nested subshells elsewhere
			}
			wantDenied(t, withoutRm(), shell, "-c", line)
			wantDenied(t, documents(), shell, "-c", line)
		}
	}
}

func TestPolicyAllowsHarmlessLines(t *testing.T) {
	for _, line := range []string{
		"ls", "make -j4 && ./run", "git commit -m 'rm x; curl y'", "echo rm", "grep rm file", "find . -name rm", "find \"$dir\" -name '*.o' -print", "xargs ls", "xargs -I{} cp {} /tmp/{}",
		"env A=1 ls", "env", "timeout 5 make", "nice -n 5 make", "x=rm; echo $x", "for f in *; do echo \"$f\"; done", "f() { ls; }; f; f", "python3 - <<'E'\nimport os\nE", "command -v rm", "type rm",
		"trap 'echo bye' EXIT", "trap - EXIT", "eval 'ls; ls'", "sh -c 'ls \"$1\"' x y", "ls > out 2>&1", "echo {a,b} *", "a=(1 2 3); echo ${a[@]}", "[[ $x == rm* ]]", "case rm in rm) ls;; esac", "cat < in > out",
	} {
		wantAllowed(t, withoutRm(), "bash", "-c", line)
	}
}

// A function may be called where it is certainly defined. Elsewhere, a program with its name would run.
func TestPolicyChecksFunctions(t *testing.T) {
	for line, good := range map[string]bool{
		"f() { ls; }; f": true, "f() { ls; }; ls | f": true, "f() { ls; }; (f)": true, "f() { f; }; f": true, "f; f() { ls; }": false, "false && f() { ls; }; f": false,
		"(f() { ls; }); f": false, "if ls; then f() { ls; }; fi; f": false, "f() { ls; } & f": false, "f() { ls; }; env f": false, "f() { ls; }; sh -c f": false,
		"f() { ls; }; unset -f f; f": false, "f() { ls; }; exec f": false,
	} {
		if good {
			wantAllowed(t, documents(), "bash", "-c", line)
		} else {
			wantDenied(t, documents(), "bash", "-c", line)
		}
	}
}

// No input may crash a worker or keep it busy.
func TestPolicyBoundsHostileLines(t *testing.T) {
	for _, unit := range []string{
		"(", "((", "{ ", "$(", "`", "if ", "while ", "[", "[[ (", "${x:-", "\"$(", "<(", "eval ", "f() {", "f() { ls; }\n", "case x in x) ", "a[", "$((", "!", "ls|", "sh -c '", "x=$(", "\\", "<<E\n", "\x00", "\xff", "{a,", "!( ",
	} {
		for _, size := range []int{90, 1000, 16_000} {
			_ = check(withoutRm(), "sh", "-c", strings.Repeat(unit, max(1, size/len(unit)))) // it must only return
		}
	}
	testkit.WantCode(t, check(withoutRm(), "sh", "-c", strings.Repeat("ls;", 64<<10)), schemas.CodePolicyDenied)
	err := check(withoutRm(), strings.Repeat("\xff", 100_000)+"/rm")
	testkit.WantCode(t, err, schemas.CodePolicyDenied)
	if n := len(err.Error()); n > 2000 {
		t.Errorf("the error of a long name is %d bytes, want at most 2000", n)
	}
}

// FuzzCheck checks that the policy does not panic, and that it refuses a denied command however it is wrapped.
func FuzzCheck(f *testing.F) {
	for i, line := range evasions() {
		f.Add(line, uint64(i))
	}
	f.Add("ls -l | sort", uint64(12345))
	f.Fuzz(func(t *testing.T, line string, seed uint64) {
		if len(line) > 4096 {
			return
		}
		for _, one := range []*schemas.Template{withoutRm(), documents()} {
			if err := check(one, "sh", "-c", line); err != nil && !errors.Is(err, schemas.ErrPolicyDenied) {
				t.Fatalf("error of %q = %v, want policy_denied", line, err)
			}
			if len(line) > 0 {
				_ = check(one, line)
			}
		}
		// rm is refused next to any other line.
		hidden := wrap("rm x", seed)
		for _, together := range []string{hidden, line + "\n" + hidden, hidden + "\n" + line} {
			if err := check(withoutRm(), "sh", "-c", hidden); !errors.Is(err, schemas.ErrPolicyDenied) {
				t.Fatalf("%q is allowed", hidden)
			}
			if check(withoutRm(), "bash", "-c", line) != nil {
				continue
			}
			// These may change how the shell parses the line after them.
			if strings.ContainsAny(line, "\\<#") || strings.Contains(line, "__END__") {
				continue
			}
			if err := check(withoutRm(), "bash", "-c", together); !errors.Is(err, schemas.ErrPolicyDenied) {
				t.Fatalf("%q is allowed", together)
			}
		}
	})
}

// wrap nests a command in others. The hexadecimal digits of seed select them.
func wrap(command string, seed uint64) string {
	forms := [16]string{
		"COMMAND", "(COMMAND)", "echo $(COMMAND)", "sh -c QUOTED", "eval QUOTED", "ls && { COMMAND; }", "if COMMAND; then ls; fi",
		"env -i A=1 sh -c QUOTED", `find . -exec bash -c QUOTED \;`, "xargs -n 1 timeout 5 sh -c QUOTED", "trap QUOTED EXIT",
		"f() { COMMAND; }; f", "ls | while read l; do COMMAND; done", `x="$(COMMAND)" ls`, "command exec nohup nice -n 5 dash -c QUOTED",
		"case a in a) COMMAND;; esac",
	}
	for range 6 {
		quoted := "'" + strings.ReplaceAll(command, "'", `'\''`) + "'"
		command = strings.NewReplacer("COMMAND", command, "QUOTED", quoted).Replace(forms[seed%16])
		seed /= 16
	}
	return command
}
