"""tsc and go vet: lines of text, long messages folded."""

from acp_agent.tools.checkers import GO_VET, TSC, Problem, ProblemSeverity
from tests.unit.tools.checkers.outcomes import said

# TypeScript 5 with --pretty false
TSC_LINES = """\
src/app.ts(3,9): error TS2322: Type 'string' is not assignable to type 'number'.
src/a (1).tsx(12,5): error TS2741: Property 'b' is missing in type '{ a: number; }' but required in type 'P'.
  Types of property 'p' are incompatible.
    Type 'undefined' is not assignable to type 'string'.
error TS18003: No inputs were found in config file '/p/tsconfig.json'. Specified 'include' paths were '["src"]'.
"""

# Go 1.22 and later name the package twice above vet's own findings.
GO_LINES = """\
# example.com/demo/sub
# [example.com/demo/sub]
sub/sub.go:6:14: fmt.Printf format %d has arg "str" of wrong type string
asm_amd64.s:12: [amd64] cannot check cross-package assembly function
# example.com/demo
vet: ./main.go:3:15: undefined: undefined_x
# example.com/demo/broken
broken/x.go:9:12: not enough arguments in call to f
\thave (number)
\twant (int, string)
main.go:4:2: no required module provides package example.com/x; to add it:
\tgo get example.com/x
go: downloading example.com/y v1.2.3
"""


def test_tsc_tells_places_codes_and_messages_of_several_lines():
    for text in (TSC_LINES, TSC_LINES.replace("\n", "\r\n")):
        assert TSC.parse(said(text, exit_code=2)) == (
            Problem(
                ProblemSeverity.ERROR, "Type 'string' is not assignable to type 'number'. [TS2322]", "src/app.ts", 3, 9
            ),
            Problem(
                ProblemSeverity.ERROR,
                "Property 'b' is missing in type '{ a: number; }' but required in type 'P'. Types of property 'p' are "
                "incompatible. Type 'undefined' is not assignable to type 'string'. [TS2741]",
                "src/a (1).tsx",
                12,
                5,
            ),
            Problem(
                ProblemSeverity.ERROR,
                "No inputs were found in config file '/p/tsconfig.json'. Specified 'include' paths were "
                "'[\"src\"]'. [TS18003]",
            ),
        )


def test_what_vet_finds_is_a_warning_and_what_does_not_compile_an_error():
    assert GO_VET.parse(said(stderr=GO_LINES, exit_code=1)) == (
        Problem(
            ProblemSeverity.WARNING, 'fmt.Printf format %d has arg "str" of wrong type string', "sub/sub.go", 6, 14
        ),
        Problem(ProblemSeverity.WARNING, "[amd64] cannot check cross-package assembly function", "asm_amd64.s", 12),
        Problem(ProblemSeverity.ERROR, "undefined: undefined_x", "./main.go", 3, 15),
        Problem(
            ProblemSeverity.ERROR,
            "not enough arguments in call to f have (number) want (int, string)",
            "broken/x.go",
            9,
            12,
        ),
        Problem(
            ProblemSeverity.ERROR,
            "no required module provides package example.com/x; to add it: go get example.com/x",
            "main.go",
            4,
            2,
        ),
    )
