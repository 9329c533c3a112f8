// Package answer reads an agent's standard output: the text of its answer, and the tokens that it reports.
//
//	stdout ──► lines ──► text                                        ──► io.Writer
//	                └──► {"type":"result","result":…,"usage":{…}}    ──► Usage
//
// The template's agent.output names the format:
//
//	text   the output is the answer, except for lines of type result
//	jsonl  each line is a JSON object with a type; the answer is the text in them
//	empty  jsonl when the first line is a JSON object with a type other than result, else text
//
// In every format, a line of type result reports token usage and is not part of the answer as it stands. Output comes from
// inside a sandbox, so parsing never fails: a line that is not understood is text.
package answer
