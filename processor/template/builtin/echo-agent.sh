# An agent that needs no model. It answers a prompt, read from its standard input, with the prompt's own words, one write for
# each, and says first how often it was asked in this workspace. ECHO_AGENT_DELAY is a time to wait before each word, as sleep
# takes it. The last line tells the tokens, of which each word is one.
set -f
prompt=$(cat)

read -r asked 2>/dev/null <.echo-agent || asked=0
case $asked in
'' | *[!0-9]* | 0?* | ??????????*) asked=0 ;;
esac
asked=$((asked + 1))
# A reader must never see half of it.
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
