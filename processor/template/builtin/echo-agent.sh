# An agent that needs no model. It reads a prompt on standard input, and prints the number of prompts in this workspace, then the
# words of the prompt, each in a separate write. ECHO_AGENT_DELAY is the delay before each word, in the form of sleep(1). The
# last line reports the tokens; each word is one.
set -f
prompt=$(cat)

read -r asked 2>/dev/null <.echo-agent || asked=0
case $asked in
'' | *[!0-9]* | 0?* | ??????????*) asked=0 ;;
esac
asked=$((asked + 1))
# Renamed, so that no reader sees a partial file.
printf '%s\n' "$asked" >.echo-agent.new && mv -f .echo-agent.new .echo-agent

input=0
output=0
say() {
	if [ -n "$ECHO_AGENT_DELAY" ]; then sleep "$ECHO_AGENT_DELAY"; fi
	printf '%s' "$1"
	output=$((output + 1))
}

say "($asked)"
for word in $prompt; do
	input=$((input + 1))
	say " $word"
done
printf '\n{"type":"result","usage":{"input_tokens":%d,"output_tokens":%d}}\n' "$input" "$output"
