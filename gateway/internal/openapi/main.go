// Command openapi writes the description of /v1 to a file: openapi FILE.
package main

import (
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/gateway"
)

func main() {
	doc, err := gateway.Document()
	if err == nil {
		err = os.WriteFile(os.Args[1], doc, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
