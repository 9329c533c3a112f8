// Package deploy holds the files with which Sluice is run as a service; see README.md. Its tests start the services as shipped:
//
//	systemd/sluice.service ──► the real systemd, in namespaces ──► the README's check
//	compose.yaml, Dockerfile ──► containers with the same options ──► the README's check
package deploy
