package main

import (
	"context"
	"errors"
	"strings"
)

// rules is a planner without a model: it knows a program that adds up orders, and repairs of the errors that the program reports.
type rules []repair

// repair is what to do about an error.
type repair struct {
	sign string // what standard error says
	goal string
	code string // in awk, for each line before it is checked
}

// The order is that in the program: each repair works on the fields that the one before it gives.
var repairs = []repair{
	{
		sign: "fields, want 6", goal: "read commas in quotes as text",
		code: `/"/ { n = split($0, part, "\""); line = ""
      for (i = 1; i <= n; i++) { if (i % 2 == 0) gsub(",", ";", part[i]); line = line part[i] }
      $0 = line }`,
	},
	{
		sign: "is not YYYY-MM-DD", goal: "turn dates round that begin with the day",
		code: `split($2, d, "/") == 3 { $2 = d[3] "-" d[2] "-" d[1] }`,
	},
	{
		sign: "amount is missing", goal: "leave out orders without an amount, and say how many they are",
		code: `$6 == "" { missing++; next }
END { print missing " orders without an amount are left out" | "cat >&2" }`,
	},
}

// plan returns the program with the repair of each error so far.
func (r rules) plan(_ context.Context, _ string, done []step) (*step, error) {
	next := &step{goal: "add up the orders of each month", script: script("")}
	if len(done) == 0 {
		return next, nil
	}
	last := done[len(done)-1]
	if last.result.ExitCode == 0 {
		return nil, nil
	}
	var code strings.Builder
	for _, known := range r {
		for i, s := range done {
			if !strings.Contains(s.result.Stderr, known.sign) {
				continue
			}
			code.WriteString(known.code + "\n")
			if i == len(done)-1 {
				next.goal = known.goal
			}
			break
		}
	}
	if next.script = script(code.String()); next.script == last.script {
		return nil, errors.New("no rule repairs this: " + strings.TrimSpace(last.result.Stderr))
	}
	return next, nil
}

// script is the shell script that answers the task, with the code of repairs.
func script(code string) string {
	return `cat >revenue.awk <<'END'
function fail(what) { print FILENAME ", line " FNR ": " what | "cat >&2"; failed = 1; exit }
BEGIN { FS = "," }
FNR == 1 { next }
` + code + `NF != 6 { fail(NF " fields, want 6") }
$2 !~ /^[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]$/ { fail("date " $2 " is not YYYY-MM-DD") }
$6 == "" { fail("amount is missing") }
{ month = substr($2, 1, 7); orders[month]++; amount[month] += $6 }
END {
  if (failed) exit 1
  for (month in orders) printf "%s,%d,%.2f\n", month, orders[month], amount[month]
}
END
awk -f revenue.awk ` + input + ` >months && { echo month,orders,amount; sort months; } >` + answer
}
