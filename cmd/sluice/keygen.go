package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-dev/sluice/events/seal"
	"github.com/sluice-dev/sluice/schemas"
)

func keygenCommand(g *globals) *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "keygen [FILE]",
		Short: "Make a key that seals commands while they wait",
		Long: `Make a key that seals commands while they wait in NATS, and print it, or write it to a new file
that only you can read. Give the file to all workers of a cell with --seal-keys. To replace a key,
put the new one above it, restart the workers, and remove the old one after --command-age.`,
		Example: `  sluice keygen /etc/sluice/seal.keys
  sluice worker --nats nats://nats.example:4222 --seal-keys /etc/sluice/seal.keys`,
		Args: oneFileOrNone,
		RunE: func(_ *cobra.Command, args []string) error {
			key, err := seal.NewKey()
			if err != nil {
				return err
			}
			return g.printKey(key, args, asJSON)
		},
	}
	jsonFlag(c, &asJSON, "the key as JSON")
	return c
}

func oneFileOrNone(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return exactArgs(1, "one FILE or none")(c, args)
}

// printKey prints a new key, or writes it to a new file that only its owner can read.
func (m *Main) printKey(key string, args []string, asJSON bool) error {
	switch {
	case len(args) == 0 && asJSON:
		return m.printJSON(map[string]string{"key": key})
	case len(args) == 0:
		_, err := fmt.Fprintln(m.Stdout, key)
		return err
	}
	file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return schemas.Errorf(schemas.CodeInvalidArgument, "the key: %w", err)
	}
	_, err = fmt.Fprintln(file, key)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return schemas.Errorf(schemas.CodeInternal, "the key: %w", err)
	}
	return nil
}

// maxKeyFile is the most bytes of a file of keys.
const maxKeyFile = 64 << 10

func readKeyFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "the key: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(file, maxKeyFile))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, schemas.Errorf(schemas.CodeInvalidArgument, "the key: %w", err)
	}
	return body, nil
}

func (w *workerFlags) readSealKeys() (*seal.Keys, error) {
	if w.sealKeys == "" {
		return nil, nil
	}
	body, err := readKeyFile(w.sealKeys)
	if err != nil {
		return nil, err
	}
	keys, err := seal.ParseKeys(body)
	if err != nil {
		return nil, fmt.Errorf("--seal-keys %s: %w", w.sealKeys, err)
	}
	return keys, nil
}
