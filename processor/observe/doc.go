// Package observe tells of a worker in log lines and metrics, from the events that it publishes anyway.
//
//	processor.Worker ──► Records (decorated) ──► events
//	                 ──► Policy  (decorated)
//	                          │
//	                          ▼
//	                      Observer ──► one log line each: session_created, session_reused, validation_failed …
//	                               └─► Prometheus: by template and outcome, never by thread, whose number has no bound
package observe
