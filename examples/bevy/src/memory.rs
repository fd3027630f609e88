//! Memory that the allocator under wgpu holds, as Bevy diagnostics.
use bevy::diagnostic::{Diagnostic, DiagnosticPath, Diagnostics, RegisterDiagnostic};
use bevy::prelude::*;
use bevy::render::renderer::RenderDevice;

/// Shows live and held memory beside Bevy's other diagnostics.
pub struct MemoryPlugin;

impl MemoryPlugin {
    /// Bytes of everything that lives.
    pub const LIVE: DiagnosticPath = DiagnosticPath::const_new("memory/live");
    /// Bytes that the driver gave.
    pub const HELD: DiagnosticPath = DiagnosticPath::const_new("memory/held");
}

impl Plugin for MemoryPlugin {
    fn build(&self, app: &mut App) {
        app.register_diagnostic(Diagnostic::new(Self::LIVE).with_suffix(" bytes"))
            .register_diagnostic(Diagnostic::new(Self::HELD).with_suffix(" bytes"))
            .add_systems(Last, measure);
    }
}

fn measure(device: Res<RenderDevice>, mut diagnostics: Diagnostics) {
    let now = Held::of(&device);
    diagnostics.add_measurement(&MemoryPlugin::LIVE, || now.live as f64);
    diagnostics.add_measurement(&MemoryPlugin::HELD, || now.held as f64);
}

/// Bytes of an allocator.
#[derive(Clone, Copy, Default)]
pub struct Held {
    pub live: u64,
    pub held: u64,
}

impl Held {
    pub fn of(device: &RenderDevice) -> Self {
        let report = device.wgpu_device().generate_allocator_report();
        report.map_or_else(Self::default, |report| Self {
            live: report.total_allocated_bytes,
            held: report.total_reserved_bytes,
        })
    }

    pub fn max(self, other: Self) -> Self {
        Self { live: self.live.max(other.live), held: self.held.max(other.held) }
    }
}
