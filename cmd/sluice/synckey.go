package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/schemas"
	"github.com/sluice-dev/sluice/syncer/cryptstore"
)

// syncKeyEnv is the environment variable with the key of an encrypted workspace.
const syncKeyEnv = "SLUICE_SYNC_KEY"

const maxKeyFile = 4 << 10 // bytes

// key returns the key of the workspace, nil for none.
func (f *syncFlags) key() (*cryptstore.Key, error) {
	if f.keyFile == "" {
		if text := f.Getenv(syncKeyEnv); text != "" {
			return cryptstore.ParseKey(text)
		}
		return nil, nil
	}
	file, err := os.Open(f.keyFile)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: the key: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "sync: the key: %w", err)
	}
	return cryptstore.ParseKey(string(text))
}

func syncKeygenCommand(f *syncFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "keygen [FILE]",
		Short: "Make a key to encrypt a workspace with",
		Long: `Make a key to encrypt a workspace with, and print it, or write it to a new file that only you can
read. Without it no one can read the workspace: keep a copy apart from the folder and the store.`,
		Example: `  sluice sync keygen work.key
  sluice sync push ./work s3://bucket/secret --key-file work.key`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return exactArgs(1, "one FILE or none")(c, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			key := cryptstore.NewKey()
			switch {
			case len(args) == 0 && f.asJSON:
				return f.printJSON(map[string]string{"key": fmt.Sprint(key)})
			case len(args) == 0:
				fmt.Fprintln(f.Stdout, key)
				return nil
			}
			file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return schemas.Errorf(schemas.CodeInvalidArgument, "sync: the key: %w", err)
			}
			_, err = fmt.Fprintln(file, key)
			if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
				return schemas.Errorf(schemas.CodeInternal, "sync: the key: %w", err)
			}
			return nil
		},
	}
}
