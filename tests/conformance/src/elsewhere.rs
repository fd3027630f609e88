//! Behaviours that belong to an interface above the seam: each names the tests that prove it. A test checks that they are
//! there.

/// A number, and its tests: file and function.
pub const ELSEWHERE: &[(u16, &[(&str, &str)])] = &[
    (
        4,
        &[
            ("bindings/torch/tests/host.rs", "nothing_is_nothing_and_a_double_free_is_reported"),
            ("bindings/c/tests/abi.rs", "stale_handles_are_refused_everywhere"),
        ],
    ),
    (
        6,
        &[(
            "bindings/torch/tests/host.rs",
            "a_free_that_states_a_wrong_size_is_reported_and_frees_what_was_recorded",
        )],
    ),
    (
        61,
        &[
            (
                "core/strategy/src/lib.rs",
                "the_general_strategy_looks_as_far_in_a_million_spans_as_in_ten",
            ),
            ("core/strategy/src/lib.rs", "buddies_look_a_few_times_at_each_power_of_two"),
            ("core/strategy/src/lib.rs", "slabs_look_at_one_word_a_level"),
        ],
    ),
    (
        88,
        &[(
            "bindings/torch/tests/host.rs",
            "memory_of_a_capture_is_kept_until_its_pool_is_released",
        )],
    ),
    (
        115,
        &[
            (
                "backends/host/tests/host/process.rs",
                "an_importer_that_is_killed_leaves_the_memory_to_its_exporter",
            ),
            (
                "backends/host/tests/host/process.rs",
                "an_importer_outlives_an_exporter_that_is_killed",
            ),
        ],
    ),
    (
        116,
        &[
            (
                "backends/host/tests/host/process.rs",
                "many_hand_overs_leave_nothing_open_on_either_side",
            ),
            ("backends/stream/tests/device/export.rs", "exports_leak_nothing"),
        ],
    ),
    (117, &[("bindings/torch/python/tests/test_package.py", "test_a_fork_lives_and_is_refused")]),
    (
        146,
        &[
            (
                "backends/host/tests/host/process.rs",
                "a_process_may_end_with_live_memory_in_statics",
            ),
            ("backends/stream/tests/device/teardown.rs", "a_forgotten_backend_is_harmless"),
        ],
    ),
    (
        148,
        &[
            (
                "tools/trace/tests/trace/recorder.rs",
                "the_figures_of_a_recording_are_those_of_the_manager",
            ),
            ("tools/cli/tests/command/trace.rs", "the_demo_is_recorded_and_replayed"),
        ],
    ),
    (
        149,
        &[
            ("tools/trace/tests/trace/csv.rs", "every_malformed_line_is_refused_with_its_number"),
            ("tools/trace/tests/trace/csv.rs", "an_endless_line_and_a_bomb_stop_early"),
            ("tools/trace/tests/trace/binary.rs", "contradictions_are_refused_with_their_byte"),
        ],
    ),
    (150, &[("tests/model/tests/sessions/session.rs", "any_session_keeps_every_promise")]),
];

#[cfg(test)]
mod tests {
    use super::ELSEWHERE;
    use omniheap_core::AnyBackend;
    use std::{collections::BTreeSet, path::Path};

    #[test]
    fn every_behaviour_is_proved_by_a_case_or_elsewhere_and_not_by_both() {
        let cases = crate::cases::<AnyBackend>();
        let here: BTreeSet<u16> = cases.iter().flat_map(|case| case.numbers).copied().collect();
        let elsewhere: BTreeSet<u16> = ELSEWHERE.iter().map(|(number, _)| *number).collect();
        assert_eq!(elsewhere.len(), ELSEWHERE.len(), "listed once");
        assert!(here.is_disjoint(&elsewhere), "{:?}", here.intersection(&elsewhere));
        let all: Vec<u16> = here.union(&elsewhere).copied().collect();
        assert_eq!(all, (1..=161).collect::<Vec<_>>(), "all 161, and no other");
    }

    #[test]
    fn every_case_has_its_own_name() {
        let cases = crate::cases::<AnyBackend>();
        let names: BTreeSet<_> = cases.iter().map(|case| case.name).collect();
        assert_eq!(names.len(), cases.len());
    }

    #[test]
    fn every_test_that_is_named_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (number, tests) in ELSEWHERE {
            assert!(!tests.is_empty(), "{number}");
            for (file, name) in *tests {
                let text = std::fs::read_to_string(root.join(file));
                let text = text.unwrap_or_else(|error| panic!("{number}: {file}: {error}"));
                let is_there =
                    ["fn ", "def "].iter().any(|word| text.contains(&format!("{word}{name}(")));
                assert!(is_there, "{number}: no {name} in {file}");
            }
        }
    }
}
