//! The arbiter with real processes: this program starts itself again as its tenants.
#[cfg(target_os = "linux")]
mod bad_input;
#[cfg(target_os = "linux")]
mod lives;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod namespaces;
#[cfg(target_os = "linux")]
mod publish;
#[cfg(target_os = "linux")]
mod shares;
#[cfg(target_os = "linux")]
mod support;

#[cfg(not(target_os = "linux"))]
fn main() {}

/// Functions with their names.
#[cfg(target_os = "linux")]
macro_rules! named {
    ($($module:ident :: $name:ident),* $(,)?) => { &[$((stringify!($name), $module::$name)),*] };
}

/// Role of a process that a test starts, with the arbiter's socket and an argument.
#[cfg(target_os = "linux")]
type Role = fn(&std::path::Path, &str);

#[cfg(target_os = "linux")]
const ROLES: &[(&str, Role)] = named![
    bad_input::floods,
    lives::sends_some_frames,
    lives::takes_everything,
    memory::forks,
    memory::hoards,
    memory::takes_turns,
    namespaces::serves_apart,
    namespaces::takes_apart,
    publish::attaches,
    publish::publishes,
    publish::publishes_half,
    publish::withdraws,
    shares::greedy,
    shares::greets_with_everything,
    shares::gives_orders,
    shares::lies,
    shares::sets_its_quota,
];

#[cfg(target_os = "linux")]
const TESTS: &[(&str, fn())] = named![
    bad_input::wrong_packets_end_their_connection_and_nothing_else,
    bad_input::contradictions_are_refused_and_change_nothing,
    bad_input::many_connections_and_slow_readers_do_not_stop_the_others,
    bad_input::ten_thousand_connections_keep_no_tenant_out,
    bad_input::descriptors_that_come_with_a_frame_are_closed,
    lives::a_kill_after_every_message_leaves_nothing_behind,
    lives::after_kill_9_everything_is_grantable_every_time,
    lives::a_connection_that_ends_does_not_free_what_the_process_holds,
    lives::who_comes_back_is_welcome_before_all_of_its_former_frames_are_read,
    lives::a_stopped_tenant_becomes_a_debtor_and_the_other_one_hears_so,
    lives::debtors_are_ended_where_the_policy_says_so,
    lives::tenants_outlive_their_arbiter_and_the_next_one_learns_what_they_hold,
    lives::stale_sockets_are_replaced_and_living_arbiters_are_not,
    lives::the_socket_is_for_its_user_alone_or_for_a_group,
    lives::a_grant_is_a_grant,
    memory::what_a_manager_holds_is_what_the_arbiter_counts,
    memory::all_memory_of_every_device_is_counted,
    memory::a_driver_that_fails_leaves_the_books_right,
    memory::pressed_memory_reaches_the_other_tenant,
    memory::a_signal_that_the_program_handles_interrupts_no_question,
    memory::a_forked_child_is_refused_and_leaves_the_account_of_its_parent_alone,
    publish::a_driver_that_fails_while_publishing_leaves_the_books_right,
    publish::a_publisher_that_is_killed_halfway_leaves_nothing,
    publish::bytes_that_somebody_changed_are_found,
    publish::bytes_that_were_published_whole_have_one_address,
    publish::descriptors_and_bytes_of_a_user_are_bounded,
    publish::published_memory_outlives_its_publisher_and_is_there_once,
    publish::what_cannot_be_published_changes_nothing,
    publish::wrong_publications_are_refused_and_their_descriptors_closed,
    shares::a_greeting_is_believed_as_far_as_the_driver_counts,
    shares::a_greeting_of_a_process_that_the_driver_does_not_list_is_a_request,
    shares::a_greeting_takes_the_reserve_of_nobody,
    shares::quotas_are_kept_and_set,
    shares::who_lies_about_giving_back_is_a_debtor_until_the_driver_agrees,
    shares::sleep_presses_for_everything_and_a_press_reaches_the_callback,
];

/// Tests with processes of other users; ignored where those cannot be started.
#[cfg(target_os = "linux")]
const OF_SEVERAL_USERS: &[(&str, fn())] = named![
    shares::three_greedy_tenants_share_by_their_weights,
    shares::orders_of_other_users_are_forbidden,
    shares::a_process_may_lower_its_own_quota_and_raise_it_to_what_it_was_given,
    memory::no_byte_of_one_user_is_seen_by_another,
    publish::only_the_user_and_those_the_policy_names_attach,
];

/// Tests with processes in namespaces of their own; ignored where there are none.
#[cfg(target_os = "linux")]
const OF_SEVERAL_NAMESPACES: &[(&str, fn())] = named![
    namespaces::tenants_in_containers_are_told_apart_and_their_end_is_seen,
    namespaces::debtors_in_containers_are_ended_where_the_policy_says_so,
    namespaces::an_arbiter_that_cannot_see_a_process_says_so,
];

/// Tests in a folder of another machine; ignored without one.
#[cfg(target_os = "linux")]
const OF_REMOTE_FOLDERS: &[(&str, fn())] =
    named![namespaces::a_socket_on_a_network_file_system_is_refused];

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    use libtest_mimic::{Arguments, Trial};
    if let Some((name, socket, argument)) = support::role() {
        let role = ROLES.iter().find(|(known, _)| *known == name);
        role.expect("a role of this program").1(&socket, &argument);
        return std::process::ExitCode::SUCCESS;
    }
    let trial = |is_ignored: bool| {
        move |(name, run): &(&str, fn())| {
            let run = *run;
            let run = move || {
                run();
                Ok(())
            };
            Trial::test(*name, run).with_ignored_flag(is_ignored)
        }
    };
    let all = [
        (TESTS, true),
        (OF_SEVERAL_USERS, support::is_root()),
        (OF_SEVERAL_NAMESPACES, support::has_namespaces()),
        (OF_REMOTE_FOLDERS, support::remote_folder().is_some()),
    ];
    let trials = all.iter().flat_map(|(tests, can_run)| tests.iter().map(trial(!can_run)));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
