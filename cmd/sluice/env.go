package main

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/schemas"
)

// fromEnv is the value of an environment variable, and standard where it is not set or empty. Errors: invalid_argument, which names the
// variable.
func fromEnv[T any](m *Main, name string, standard T, parse func(string) (T, error)) (T, error) {
	text := m.Getenv(name)
	if text == "" {
		return standard, nil
	}
	v, err := parse(text)
	if err != nil {
		return standard, schemas.Errorf(schemas.CodeInvalidArgument, "%s is %q: %w", name, text, err)
	}
	return v, nil
}

// wholeNumber reads a number of things.
func wholeNumber(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, errors.New("not a whole number: write digits only, without a unit")
	}
	return n, nil
}

// unitsOf reads a number of things that have this size each.
func unitsOf(size int64) func(string) (int64, error) {
	return func(text string) (int64, error) {
		n, err := wholeNumber(text)
		if err == nil && n > math.MaxInt64/size {
			err = errors.New("the number is too large")
		}
		return n * size, err
	}
}

var (
	errDuration = errors.New("not a duration: write 30s, 5m or 168h")
	errNegative = errors.New("it must not be negative")
)

func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errDuration
	case d < 0:
		return 0, errNegative
	}
	return d, nil
}

// invalidEnv annotates a flag with what is wrong with the environment variable that sets it.
const invalidEnv = "invalid-environment"

// annotate keeps the error of a flag's variable for checkEnv.
func annotate(f *pflag.FlagSet, flag string, err error) {
	if err != nil {
		f.Lookup(flag).Annotations = map[string][]string{invalidEnv: {err.Error()}}
	}
}

// checkEnv returns the error of the first variable that sets a flag of c. One that the command line sets needs no variable. Errors:
// invalid_argument.
func checkEnv(c *cobra.Command) (err error) {
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if wrong := f.Annotations[invalidEnv]; len(wrong) > 0 && !f.Changed && err == nil {
			err = schemas.Errorf(schemas.CodeInvalidArgument, "%s", wrong[0])
		}
	})
	return err
}
