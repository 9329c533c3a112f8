package main

import (
	"os"

	"github.com/sluice-dev/sluice/sandbox/supervisor"
	"github.com/sluice-dev/sluice/sandbox/supervisor/zygote"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "zygote" {
		os.Exit(zygote.Main())
	}
	os.Exit(supervisor.Main(os.Args[1:]))
}
