package main

import (
	"encoding/json"
	"path"
	"regexp"
	"testing"

	"github.com/BurntSushi/toml"
	"go.yaml.in/yaml/v3"

	"github.com/sluice-dev/sluice/internal/testkit"
)

// Every configuration in docs/mcp.md is valid, and starts this program with flags that it has.
func TestConfigurationsOfAgentsAreValid(t *testing.T) {
	parsers := map[string]func([]byte, any) error{"json": json.Unmarshal, "toml": toml.Unmarshal, "yml": yaml.Unmarshal}
	seen := map[string]int{}
	for _, m := range regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$").FindAllStringSubmatch(doc(t, "mcp.md"), -1) {
		parse := parsers[m[1]]
		if parse == nil {
			t.Errorf("a sample of %s: no test reads that", m[1])
			continue
		}
		var config map[string]any
		if err := parse([]byte(m[2]), &config); err != nil {
			t.Errorf("%v in\n%s", err, m[2])
			continue
		}
		if n := servers(t, config); n != 1 {
			t.Errorf("%d servers, want one, in\n%s", n, m[2])
		}
		seen[m[1]]++
	}
	testkit.Equal(t, "samples", seen, map[string]int{"json": 8, "toml": 1, "yml": 1})
}

// servers checks each server of a configuration, and returns how many there are.
func servers(t *testing.T, config map[string]any) (n int) {
	t.Helper()
	command, isServer := config["command"].(string)
	if !isServer {
		command, isServer = config["cmd"].(string)
	}
	if !isServer {
		for _, v := range config {
			if inner, ok := v.(map[string]any); ok {
				n += servers(t, inner)
			}
		}
		return n
	}
	testkit.Equal(t, "program", path.Base(command), "sluice")
	var args []string
	list, _ := config["args"].([]any)
	for _, a := range list {
		text, _ := a.(string)
		args = append(args, text)
	}
	c, rest, err := (&Main{Getenv: func(string) string { return "" }}).rootCommand().Find(args)
	testkit.Must(t, err)
	testkit.Equal(t, "command", c.Name(), "mcp")
	testkit.Must(t, c.ParseFlags(rest))
	testkit.Equal(t, "arguments that are no flags", len(c.Flags().Args()), 0)
	return 1
}
