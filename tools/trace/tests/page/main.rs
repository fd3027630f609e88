//! The report's page in a real browser: what is drawn, and what mouse, touch and keys do.
//!
//! Without a browser every test is ignored; `OMNIHEAP_REQUIRE=browser` makes that a failure.

mod browser;
mod looks;
mod panels;
mod plot;
mod runs;
mod sample;
mod timeline;

use browser::Browser;
use libtest_mimic::{Arguments, Trial};
use std::sync::{Arc, Mutex, PoisonError};

type Test = fn(&mut Browser);

/// Lists tests with their names.
macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((concat!(stringify!($module), "::", stringify!($name)), $module::$name)),*]
    };
}

const TESTS: &[(&str, Test)] = tests![
    timeline::bands_are_where_allocations_are,
    timeline::no_peak_is_too_short_to_be_seen,
    timeline::the_axis_ends_at_the_last_event,
    timeline::hovering_names_the_allocation,
    timeline::what_sleeps_is_drawn_where_it_is,
    timeline::host_memory_at_addresses_of_the_device_is_drawn,
    timeline::names_never_become_elements,
    timeline::wheel_and_keys_zoom_and_pan,
    timeline::dragging_pans_and_the_strip_chooses,
    timeline::two_fingers_zoom,
    timeline::a_search_counts_highlights_and_steps,
    timeline::colors_follow_the_choice,
    timeline::models_are_called_models,
    panels::a_click_shows_what_was_live,
    panels::the_table_sorts_and_sums,
    panels::a_row_leads_to_its_band,
    panels::the_event_list_follows_and_leads,
    panels::long_lists_stay_short,
    panels::maps_count_memory_and_not_addresses,
    panels::the_map_names_what_is_under_the_pointer,
    panels::failures_lead_to_their_map,
    panels::a_report_of_one_moment_has_a_map,
    panels::a_link_opens_at_its_moment,
    panels::a_stack_has_a_line_for_each_frame,
    panels::the_answer_of_fit_comes_first,
    runs::runs_are_on_one_scale_and_one_is_shown,
    runs::a_dropped_snapshot_is_read_as_the_command_reads_it,
    runs::what_cannot_be_opened_leaves_the_page_as_it_was,
    looks::no_column_of_the_live_table_is_cut_off,
    looks::ranks_are_on_one_clock,
    looks::colors_follow_the_system_until_they_are_switched,
    looks::a_phone_shows_everything_without_scrolling_sideways,
    looks::focus_can_be_seen,
    looks::a_page_that_cannot_be_shown_says_why,
];

fn main() {
    let mut arguments = Arguments::from_args();
    // One browser serves all tests, one after the other.
    arguments.test_threads = Some(1);
    let found = browser::installed();
    let required = std::env::var("OMNIHEAP_REQUIRE").is_ok_and(|names| names.contains("browser"));
    let shared: Arc<Mutex<Option<Browser>>> = Arc::default();
    let trials = TESTS.iter().map(|&(name, test)| {
        let shared = Arc::clone(&shared);
        let run = move || {
            let program = found.ok_or("there is no browser here: install chromium")?;
            let mut place = shared.lock().unwrap_or_else(PoisonError::into_inner);
            // Taken out: a test that panics drops the browser, and the next one starts its own.
            let start = || Browser::start(program, plot::folder().join("profile"));
            let mut browser = place.take().unwrap_or_else(start);
            test(&mut browser);
            *place = Some(browser);
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(found.is_none() && !required)
    });
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    drop(shared.lock().unwrap_or_else(PoisonError::into_inner).take());
    if found.is_some() {
        let _ = std::fs::remove_dir_all(plot::folder());
    }
    conclusion.exit();
}
