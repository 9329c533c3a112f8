package template

import (
	"embed"

	"github.com/sluice-dev/sluice/schemas"
)

//go:embed builtin
var builtin embed.FS

// echoAgentScript is where the script of the template echo-agent stands in for its text: files hold no other files.
const echoAgentScript = "builtin/echo-agent.sh"

// Builtin are the templates that every worker has: default, echo-agent, and those of common agent programs. Errors: internal,
// which a test rules out.
func Builtin() ([]*schemas.Template, error) {
	const file = "builtin/builtin.yaml"
	body, err := builtin.ReadFile(file)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	script, err := builtin.ReadFile(echoAgentScript)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	out, err := Parse(file, body)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInternal, "built-in templates: %w", err)
	}
	return append(out, &schemas.Template{
		Name: "echo-agent", Description: "Answers each prompt with its own words; for trying things out, and for tests.",
		Agent: &schemas.TemplateAgent{Command: []string{"sh", "-c", string(script), "echo-agent"}},
	}), nil
}
