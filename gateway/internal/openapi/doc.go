// Command openapi writes the description of /v1 to a file, from the folder of package gateway: openapi FILE.
package main
