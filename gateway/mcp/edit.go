package mcp

import (
	"context"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-dev/sluice/schemas"
)

// maxEdited is the largest file that edit_file edits, in bytes.
const maxEdited = 4 << 20

type editInput struct {
	target
	Path  string `json:"path" jsonschema:"Path of the file, relative to the workspace."`
	Edits []edit `json:"edits" jsonschema:"What to replace, one after the other."`
}

type edit struct {
	OldText string `json:"old_text" jsonschema:"Text to replace, exactly as in the file, with its spaces and newlines."`
	NewText string `json:"new_text" jsonschema:"What stands there then. Empty removes old_text."`
	All     bool   `json:"all,omitempty" jsonschema:"Replaces every occurrence."`
}

type edited struct {
	fileInfo
	Replaced int `json:"replaced" jsonschema:"How many occurrences were replaced."`
}

// editFile replaces text in a file. Errors: those of client.Files; invalid_argument for a text that is not in the file, or more than once;
// conflict when the file changes meanwhile; too_large.
func (s *server) editFile(ctx context.Context, _ *sdk.CallToolRequest, in editInput) (edited, error) {
	files, err := s.files(ctx, in.target)
	if err != nil {
		return edited{}, err
	}
	before, err := files.Stat(ctx, in.Path)
	if err != nil {
		return edited{}, err
	}
	if before.Type == "symlink" {
		return edited{}, schemas.Errorf(schemas.CodeInvalidArgument, "path: %s is a symbolic link: edit the file that it leads to, %s", in.Path, before.Target)
	}
	data, more, err := readPart(ctx, files, in.Path, 0, maxEdited)
	if err != nil {
		return edited{}, err
	}
	if more {
		return edited{}, schemas.Errorf(schemas.CodeTooLarge, "path: %s has more than %d bytes: change it with a command, such as sed", in.Path, maxEdited)
	}
	text, replaced, err := apply(string(data), in.Edits)
	if err != nil {
		return edited{}, err
	}
	now, err := files.Stat(ctx, in.Path)
	if err != nil {
		return edited{}, err
	}
	if now.Size != before.Size || now.Modified == nil || before.Modified == nil || !now.Modified.Equal(*before.Modified) {
		return edited{}, schemas.Errorf(schemas.CodeConflict, "%s was changed meanwhile: nothing was replaced", in.Path)
	}
	e, err := files.Write(ctx, in.Path, strings.NewReader(text))
	if err != nil {
		return edited{}, err
	}
	return edited{infoOf(e), replaced}, nil
}

// apply makes edits of a text. Errors: invalid_argument, too_large.
func apply(text string, edits []edit) (string, int, error) {
	replaced := 0
	for i, e := range edits {
		if e.OldText == "" {
			return "", 0, schemas.Errorf(schemas.CodeInvalidArgument, "edits[%d].old_text is empty: name the text to replace, or use write_file", i)
		}
		n := strings.Count(text, e.OldText)
		switch {
		case n == 0:
			return "", 0, schemas.Errorf(schemas.CodeInvalidArgument,
				"edits[%d].old_text is not in the file: read it again, and copy the text with its spaces and newlines", i)
		case n > 1 && !e.All:
			return "", 0, schemas.Errorf(schemas.CodeInvalidArgument,
				"edits[%d].old_text is in the file %d times: add lines around it until it is unique, or set all", i, n)
		}
		if len(text)+n*(len(e.NewText)-len(e.OldText)) > maxEdited {
			return "", 0, schemas.Errorf(schemas.CodeTooLarge, "edits[%d]: the file would have more than %d bytes", i, maxEdited)
		}
		text = strings.ReplaceAll(text, e.OldText, e.NewText)
		replaced += n
	}
	return text, replaced, nil
}
