// Package registrytest checks that a provider still reads the record files that earlier versions wrote.
package registrytest
