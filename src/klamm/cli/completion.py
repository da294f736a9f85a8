"""`klamm completion`: scripts that make a shell complete this command.

The scripts are the same for every release: they ask `klamm __complete`, which knows the arguments of each verb, and
the names of topics too (see complete.py).
"""

from __future__ import annotations

import argparse
from typing import Final

_ABOUT: Final = """\
Print the script that completes commands, options, topics and file names in your shell."""
_EXAMPLES: Final = """\
to have it always:
  bash    echo 'eval "$(klamm completion bash)"' >> ~/.bashrc
  zsh     echo 'eval "$(klamm completion zsh)"' >> ~/.zshrc       (after compinit)
  fish    klamm completion fish > ~/.config/fish/completions/klamm.fish"""

_BASH: Final = r"""# Completion of klamm for bash. Use it with: eval "$(klamm completion bash)"
_klamm() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files) compopt -o default 2>/dev/null ;;
            :dirs) compopt -o dirnames 2>/dev/null ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _klamm klamm
"""
_ZSH: Final = r"""#compdef klamm
# Completion of klamm for zsh. Use it with: eval "$(klamm completion zsh)"
_klamm() {
    local line name
    local -a found open
    while IFS= read -r line; do
        name=${line%%$'\t'*}
        case $line in
            :files) _files; return ;;
            :dirs) _files -/; return ;;
            *) if [[ $name == *= ]]; then open+=("$name"); else found+=("${name//:/\\:}:${line#*$'\t'}"); fi ;;
        esac
    done < <("${words[1]}" __complete zsh "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( ${#open} )) && compadd -S '' -- "${open[@]}"
    (( ${#found} )) && _describe klamm found
}
if [[ ${funcstack[1]} == _klamm ]]; then _klamm "$@"; else compdef _klamm klamm; fi
"""
_FISH: Final = r"""# Completion of klamm for fish. Use it with: klamm completion fish | source
function __klamm_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    for line in ($words[1] __complete fish $words[2..-1] "$current" 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path "$current"
            case :dirs
                __fish_complete_directories "$current"
            case '*'
                echo $line
        end
    end
end
complete -c klamm -f -a '(__klamm_complete)'
"""
SCRIPTS: Final = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = _ABOUT
    parser.epilog = _EXAMPLES
    parser.add_argument("shell", choices=list(SCRIPTS), metavar="SHELL", help="bash, zsh or fish")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell], end="")
    return 0
