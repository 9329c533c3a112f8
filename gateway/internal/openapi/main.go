package main

import (
	"fmt"
	"os"

	"github.com/sluice-dev/sluice/gateway"
)

func main() {
	doc, err := generate(".")
	if err == nil {
		err = os.WriteFile(os.Args[1], doc, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// generate makes the description with the comments of the source in the folder of package gateway.
func generate(folder string) ([]byte, error) {
	c, err := readComments(folder, folder+"/../schemas")
	if err != nil {
		return nil, err
	}
	return gateway.Describe(c.of)
}
