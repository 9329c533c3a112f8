package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/syncer/cryptstore"
)

// syncKeyEnv is the environment variable with the key of an encrypted workspace.
const syncKeyEnv = "SLUICE_SYNC_KEY"

// key returns the key of the workspace, nil for none.
func (f *syncFlags) key() (*cryptstore.Key, error) {
	if f.keyFile == "" {
		if text := f.Getenv(syncKeyEnv); text != "" {
			return cryptstore.ParseKey(text)
		}
		return nil, nil
	}
	text, err := readKeyFile(f.keyFile)
	if err != nil {
		return nil, err
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
		Args: oneFileOrNone,
		RunE: func(_ *cobra.Command, args []string) error {
			return f.printKey(fmt.Sprint(cryptstore.NewKey()), args, f.asJSON)
		},
	}
}
