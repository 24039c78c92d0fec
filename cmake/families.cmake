# Compiles a source once for each family of ops: src/ops/families.h is the list, read here.

set(list ${PROJECT_SOURCE_DIR}/src/ops/families.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
file(READ ${list} text)
string(REGEX MATCHALL "(ELEMENTWISE|OTHER)\\([a-z_]+, [A-Za-z]+\\)" HYALITE_FAMILIES "${text}")
set(HYALITE_ELEMENTWISE ${HYALITE_FAMILIES})
list(FILTER HYALITE_ELEMENTWISE INCLUDE REGEX "^ELEMENTWISE")

# Adds an object library PREFIX_FAMILY of `source` for each row of `families`, and sets `out` to their names.
# The source sees HYALITE_FAMILY (functions), HYALITE_OPS (Functions) and HYALITE_FAMILY_HEADER ("ops/functions.h").
function(hyalite_for_families out prefix source families)
  set(targets)
  foreach(row IN LISTS families)
    string(REGEX MATCH "\\((.*), (.*)\\)" row "${row}")
    set(target ${prefix}_${CMAKE_MATCH_1})
    add_library(${target} OBJECT ${source})
    target_link_libraries(${target} PRIVATE hyalite_flags)
    target_compile_definitions(${target} PRIVATE HYALITE_FAMILY=${CMAKE_MATCH_1} HYALITE_OPS=${CMAKE_MATCH_2}
      HYALITE_FAMILY_HEADER="ops/${CMAKE_MATCH_1}.h")
    list(APPEND targets ${target})
  endforeach()
  set(${out} ${targets} PARENT_SCOPE)
endfunction()
