// One row for 256 neighbours: the same in a group, another in the next.
let row = $table[(i / 256u) % rows];
value = ((row.x * x + row.y) * x + row.z) * x + row.w;
