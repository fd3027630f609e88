//! The cases, one file for each part of the interface.

mod bugs;
mod bugs_pages;
mod copies;
mod devices;
mod driver;
mod driver_pages;
mod kernels;
mod peers;
mod plain;
mod pointers;
mod pools;
mod streams;
mod stress;
mod virtual_memory;

use crate::run::Run;

/// A list of calls with a name.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Name on the command line.
    pub name: &'static str,
    /// True if every library survives it with one device.
    pub everywhere: bool,
    pub(crate) run: fn(&mut Run),
}

const fn case(name: &'static str, run: fn(&mut Run)) -> Case {
    Case { name, everywhere: true, run }
}

const fn special(name: &'static str, run: fn(&mut Run)) -> Case {
    Case { name, everywhere: false, run }
}

/// Cases that a HIP library is expected to pass.
pub const CASES: &[Case] = &[
    case("devices", devices::describe),
    case("plain", plain::allocate_and_free),
    case("copies", copies::copy_and_fill),
    case("streams", streams::order),
    case("pointers", pointers::describe),
    case("pools", pools::stream_ordered),
    case("virtual", virtual_memory::reserve_map_unmap),
    case("share", virtual_memory::share),
    case("kernels", kernels::load_and_launch),
    case("stress", stress::random_operations),
    case("driver", driver::plain),
    case("driver-pages", driver_pages::pages_and_pools),
    case("driver-kernels", driver::kernels),
    special("absent", devices::absent),
    special("compile", kernels::compile),
    special("driver-two", driver::two_devices),
    special("peers", peers::two_devices),
    special("allocate-once", plain::allocate_once),
    special("map-once", virtual_memory::map_once),
];

/// Known faults of AMD's runtime; some of these end the process.
pub const BUGS: &[Case] = &[
    special("threshold", bugs::threshold_is_ignored),
    special("interior-free", bugs::interior_free_frees_all),
    special("growth", bugs::growth_runs_out),
    special("access-sizes", bugs_pages::access_fails_for_some_sizes),
    special("access-tail", bugs_pages::access_fails_on_a_grown_tail),
    special("unmap-many", bugs_pages::one_unmap_over_many_maps),
    special("unmap-unknown", bugs_pages::unmap_of_a_stranger),
    special("free-unknown", bugs_pages::address_free_of_a_stranger),
    special("map-wrong", bugs_pages::wrong_maps_succeed),
    special("retain", bugs_pages::retain_takes_no_reference),
];
