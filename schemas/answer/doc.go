// Package answer reads what an agent prints: where its answer stands in it, and what it says it used.
//
//	output ──lines──► text, as it comes                          ──► Text
//	              └─► {"type":"result","result":…,"usage":{…}}   ──► Usage
//
// Agents print plain text, or JSON lines; many end with a line of type result that reports their token usage. An output whose
// first line is a JSON object with a type is JSON lines: of those, only what the agent says is text. In plain text only the
// lines of type result are taken out.
//
// What an agent prints comes from inside a sandbox. Nothing here fails: what cannot be read is text.
package answer
