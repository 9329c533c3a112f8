// Package removal removes trees that were written by processes that are not trusted: of any depth, and with any permissions. It imports
// nothing of Sluice.
package removal
