package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asSluice makes the test binary the program under test, so that a second process, with a signal or a kill -9 of its own, is the
// very code that was compiled for the test, race detector included.
const asSluice = "SLUICE_TEST_AS_SLUICE"

func TestMain(m *testing.M) {
	if os.Getenv(asSluice) != "" || (len(os.Args) > 1 && os.Args[1] == "supervisor") {
		main()
	}
	goleak.VerifyTestMain(m)
}
