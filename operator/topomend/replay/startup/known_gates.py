"""The feature gates of every release's kubelet. Written by ``python -m verify.config_oracle.known_gates``.

Source: the gates that v1.30.14, v1.31.14, v1.32.9, v1.33.5, v1.34.4, v1.35.0, v1.36.0, v1.37.2
register themselves. Replay's tests compare the newest, the oldest and 1.34 with whole kubelets.
"""

from enum import Enum


class Stage(Enum):
    """How far a feature is."""

    ALPHA = "a"
    BETA = "b"
    STABLE = "s"
    DEPRECATED = "d"


GATES = """\
APIListChunking 30-32:s+!
APIPriorityAndFairness 30:s+!
APIResponseCompression 30-37:b+
APIServerIdentity 30-37:b+
APIServerTracing 30-33:b+ 34-36:s+!
APIServerWebhookAuthenticationToken 37:a-
APIServingWithRoutine 30-37:a-
AdmissionWebhookMatchConditions 30-32:s+!
AggregatedDiscoveryEndpoint 30-32:s+!
AggregatedDiscoveryRemoveBetaType 33-34:d+ 35-37:d+!
AllAlpha 30-37:a-
AllBeta 30-37:b-
AllowDNSOnlyNodeCSR 31-37:d-
AllowInsecureKubeletCertificateSigningRequests 31-37:d-
AllowOverwriteTerminationGracePeriodSeconds 32-34:d- 35-37:d-!
AllowParsingUserUIDFromCertAuth 33-37:b+
AllowServiceExternalIPs 36-37:s+
AllowServiceLBStatusOnNonLB 30-31:d- 32-34:d-!
AllowUnsafeMalformedObjectDeletion 32-36:a- 37:b+
AnonymousAuthConfigurableEndpoints 31:a- 32-33:b+ 34-36:s+!
AnyVolumeDataSource 30-32:b+ 33-36:s+!
AppArmor 30:b+ 31-32:s+!
AppArmorFields 30:b+ 31-32:s+!
AtomicFIFO 36-37:b+
AtomicWriteVolumeUserFields 37:a-
AuthorizeNodeWithSelectors 31:a- 32-33:b+ 34-36:s+!
AuthorizePodWebsocketUpgradeCreatePermission 35-37:b+
AuthorizeWithSelectors 31:a- 32-33:b+ 34-36:s+!
BtreeWatchCache 32:b+ 33-36:s+!
CBORServingAndStorage 32-37:a-
CPUManager 30-32:s+!
CPUManagerPolicyAlphaOptions 30-37:a-
CPUManagerPolicyBetaOptions 30-37:b+
CPUManagerPolicyOptions 30-32:b+ 33-37:s+!
CRDObservedGenerationTracking 35:b- 36-37:b+
CRDValidationRatcheting 30-32:b+ 33-37:s+!
CRIListStreaming 36-37:a-
CSIMigrationPortworx 30:b- 31-32:b+ 33-35:s+!
CSIMigrationRBD 30:d-
CSINodeExpandSecret 30:s+!
CSIServiceAccountTokenSecrets 35:b+ 36-37:s+!
CSIVolumeHealth 30-37:a-
ChangeContainerStatusOnKubeletRestart 35-37:d-
ClearingNominatedNodeNameAfterBinding 34:a- 35-37:b+
ClientsAllowCARotation 36-37:b+
ClientsAllowCBOR 32-37:a-
ClientsAllowTLSCacheGC 36-37:b+
ClientsPreferCBOR 32-37:a-
CloudControllerManagerWatchBasedRoutesReconciliation 35-37:a-
CloudControllerManagerWebhook 30-37:a-
CloudDualStackNodeIPs 30-31:s+!
ClusterTrustBundle 30-32:a- 33-36:b- 37:s+
ClusterTrustBundleProjection 30-32:a- 33-36:b- 37:s+
ComponentFlagz 32-35:a- 36-37:b+
ComponentSLIs 30-31:b+ 32-34:s+!
ComponentStatusz 32-35:a- 36-37:b+
CompositePodGroup 37:a-
ConcurrentWatchObjectDecode 31-36:b- 37:b+
ConsistentHTTPGetHandlers 30:s+!
ConsistentListFromCache 30:a- 31-33:b+ 34-36:s+!
ConsistentListFromCacheSkipTimeoutFallback 37:a-
ConstrainedImpersonation 35:a- 36-37:b+
ContainerCheckpoint 30-37:b+
ContainerRestartRules 34:a- 35-37:b+
ContainerStopSignals 33-37:a-
ContextualLogging 30-37:b+
CoordinatedLeaderElection 31-32:a- 33-37:b-
CronJobsScheduledAnnotation 30-31:b+ 32-34:s+!
CrossNamespaceVolumeDataSource 30-37:a-
CustomCPUCFSQuotaPeriod 30-35:a- 36-37:s+
CustomResourceFieldSelectors 30:a- 31:b+ 32-37:s+!
CustomResourceValidationExpressions 30:s+!
DRAAdminAccess 32-33:a- 34-35:b+ 36-37:s+!
DRAConsumableCapacity 34-35:a- 36-37:b+
DRAControlPlaneController 31:a-
DRADerivedAttributes 37:a-
DRADeviceBindingConditions 34-35:a- 36-37:b+
DRADeviceCompatibilityGroups 37:a-
DRADeviceTaintRules 35:a- 36:b- 37:s+
DRADeviceTaints 33-35:a- 36:b+ 37:s+
DRAExtendedResource 34-35:a- 36:b+ 37:s+!
DRAFractionalCapacityRange 37:b-
DRAListTypeAttributes 36-37:a-
DRANodeAllocatableResources 36-37:a-
DRAOptionalNodeOperations 37:a-
DRAPartitionableDevices 33-35:a- 36-37:b+
DRAPartitionableDevicesType 37:a-
DRAPrioritizedList 33:a- 34-35:b+ 36:s+ 37:s+!
DRAResourceClaimDeviceStatus 32:a- 33-36:b+ 37:s+!
DRAResourceClaimGranularStatusAuthorization 36-37:b+
DRAResourcePoolStatus 36-37:a-
DRASchedulerFilterTimeout 34-37:b+
DRAWorkloadResourceClaims 36:a- 37:b-
DeclarativeValidation 33-35:b+ 36-37:s+!
DeclarativeValidationBeta 36-37:b+
DeclarativeValidationTakeover 33-35:b- 36:d- 37:d-!
DefaultHostNetworkHostPortsInPodTemplates 30:d-
DefaultPodSysctls 37:a-
DeploymentReplicaSetTerminatingReplicas 33-34:a- 35-37:b+
DetectCacheInconsistency 34-37:b+
DevicePluginCDIDevices 30:b+ 31-33:s+!
DisableAllocatorDualWrite 31-32:a- 33:b- 34:s+ 35-37:s+!
DisableCPUQuotaWithExclusiveCPUs 33-35:b+ 36:d+ 37:d+!
DisableCloudProviders 30:b+ 31-32:s+!
DisableKubeletCloudCredentialProviders 30:b+ 31-32:s+!
DisableNodeKubeProxyVersion 30:a- 31-32:d- 33-35:d+ 36-37:d+!
DynamicResourceAllocation 30-31:a- 32-33:b- 34:s+ 35-37:s+!
EfficientWatchResumption 30-32:s+!
ElasticIndexedJob 30:b+ 31-33:s+!
EmptyDirVolumeMode 37:a-
EnvFiles 34:a- 35-37:b+
EtcdRangeStream 37:b+
EventedPLEG 30-37:a-
EvictionRequestAPI 37:a-
ExcludeAdmissionWebhookVirtualResources 37:b+
ExecProbeTimeout 30-34:s+ 35-37:s+!
ExtendWebSocketsToKubelet 36-37:b+
ExternalServiceAccountTokenSigner 32-33:a- 34-35:b+ 36-37:s+!
GRPCContainerProbeTLS 37:a-
GangScheduling 35-36:a-
GenericWorkload 35-36:a- 37:b-
GitRepoVolumeDriver 33-35:d- 36-37:d-!
GracefulNodeShutdown 30-37:b+
GracefulNodeShutdownBasedOnPodPriority 30-37:b+
H2CContainerProbe 37:a-
HPAConfigurableTolerance 33-34:a- 35-36:b+ 37:s+!
HPAContainerMetrics 30-31:s+!
HPAGeneration 37:b+
HPAOptimizedSelectorStore 37:b+
HPAScaleToZero 30-36:a- 37:b+
HonorPVReclaimPolicy 30:a- 31-32:b+ 33-35:s+!
HostnameOverride 34:a- 35-36:b+ 37:s+!
HugepageAwareEviction 37:b+
ImageMaximumGCAge 30-34:b+ 35-37:s+!
ImageVolume 31-32:a- 33-34:b- 35:b+ 36-37:s+!
ImageVolumeWithDigest 36-37:a-
InOrderInformers 33-35:b+ 36-37:s+!
InOrderInformersBatchProcess 35-37:b+
InPlacePodLevelResourcesVerticalScaling 35:a- 36-37:b+
InPlacePodVerticalScaling 30-32:a- 33-34:b+ 35-37:s+!
InPlacePodVerticalScalingAllocatedStatus 32:a- 33-35:d-
InPlacePodVerticalScalingExclusiveCPUs 32-37:a-
InPlacePodVerticalScalingExclusiveMemory 34-37:a-
InPlacePodVerticalScalingInitContainers 36:b+ 37:s+!
InPlacePodVerticalScalingMemoryBackedVolumes 37:a-
InPlacePodVerticalScalingSchedulerPreemption 37:a-
InTreePluginAWSUnregister 30:a-
InTreePluginAzureDiskUnregister 30:a-
InTreePluginAzureFileUnregister 30:a-
InTreePluginGCEUnregister 30:a-
InTreePluginOpenStackUnregister 30:a-
InTreePluginPortworxUnregister 30-35:a-
InTreePluginRBDUnregister 30:d-
InTreePluginvSphereUnregister 30:a-
InformerResourceVersion 30-34:a- 35-37:s+
InterPodAffinityHostnameFastPath 37:a-
JobBackoffLimitPerIndex 30-32:b+ 33-36:s+!
JobManagedBy 30-31:a- 32-34:b+ 35-37:s+!
JobPodFailurePolicy 30:b+ 31-32:s+!
JobPodReplacementPolicy 30-33:b+ 34-36:s+!
JobReadyPods 30:s+!
JobSuccessPolicy 30:a- 31-32:b+ 33-36:s+!
KMSv1 30-37:d-
KMSv2 30-31:s+!
KMSv2KDF 30-31:s+!
KubeProxyDrainingTerminatingNodes 30:b+ 31-32:s+!
KubeProxyIPVS 37:d+
KubeProxyNFTablesLocalhostNodePorts 37:a-
KubeletAllocatedPodsEndpoint 37:a-
KubeletCgroupDriverFromCRI 30:a- 31-33:b+ 34-37:s+!
KubeletCrashLoopBackOffMax 32-34:a- 35-37:b+
KubeletEnsureSecretPulledImages 33-34:a- 35-37:b+
KubeletFineGrainedAuthz 32:a- 33-35:b+ 36-37:s+!
KubeletInUserNamespace 30-36:a- 37:b+
KubeletPSI 33:a- 34-35:b+ 36-37:s+!
KubeletPodResourcesDynamicResources 30-33:a- 34-35:b+ 36-37:s+!
KubeletPodResourcesGet 30-33:a- 34-35:b+ 36-37:s+!
KubeletPodResourcesListUseActivePods 34-37:d+
KubeletRegistrationGetOnExistsOnly 32-37:d-
KubeletSeparateDiskGC 30:a- 31-37:b+
KubeletServiceAccountTokenForCredentialProviders 33:a- 34-37:b+
KubeletTracing 30-33:b+ 34-37:s+!
LegacyServiceAccountTokenCleanUp 30-31:s+!
LegacySidecarContainers 33:d-
ListFromCacheSnapshot 33:a- 34-37:b+
LoadBalancerIPMode 30-31:b+ 32-34:s+!
LocalStorageCapacityIsolationFSQuotaMonitoring 30:a- 31-37:b-
LogarithmicScaleDown 30:b+ 31-36:s+!
LoggingAlphaOptions 30-37:a-
LoggingBetaOptions 30-37:b+
ManifestBasedAdmissionControlConfig 36:a- 37:b+
MatchLabelKeysInPodAffinity 30:a- 31-32:b+ 33-37:s+!
MatchLabelKeysInPodTopologySpread 30-37:b+
MatchLabelKeysInPodTopologySpreadSelectorMerge 34-37:b+
MaxUnavailableStatefulSet 30-34:a- 35:b+ 36:b- 37:b+
MemoryManager 30-31:b+ 32-35:s+!
MemoryQoS 30-36:a- 37:b+
MinDomainsInPodTopologySpread 30-31:s+!
MultiCIDRServiceAllocator 30:a- 31-32:b- 33:s+ 34-37:s+!
MutableCSINodeAllocatableCount 33:a- 34:b- 35:b+ 36-37:s+!
MutablePVNodeAffinity 35-37:a-
MutablePodResourcesForSuspendedJobs 35:a- 36-37:b+
MutableSchedulingDirectivesForSuspendedJobs 35:a- 36-37:b+
MutatingAdmissionPolicy 30-33:a- 34-35:b- 36-37:s+
NFTablesNetlink 37:b+
NFTablesProxyMode 30:a- 31-32:b+ 33-37:s+!
NativeHistograms 36:a- 37:b+
NewVolumeManagerReconstruction 30-31:s+!
NodeControllerLeaseCircuitBreaker 37:b+
NodeDeclaredFeatures 35:a- 36:b+ 37:s+!
NodeInclusionPolicyInPodTopologySpread 30-32:b+ 33-37:s+!
NodeLifecycleConditions 37:a-
NodeLogQuery 30-35:b- 36-37:s+!
NodeOutOfServiceVolumeDetach 30-31:s+!
NodeSwap 30-33:b+ 34-37:s+!
NominatedNodeNameForExpectation 34:a- 35-37:b+
OpenAPIEnums 30-37:b+
OpportunisticBatching 35-37:b+
OrderedNamespaceDeletion 30-32:b- 33:b+ 34-36:s+!
PDBUnhealthyPodEvictionPolicy 30:b+ 31-32:s+!
PLEGOnDemandRelist 36:b+ 37:s+!
PersistentVolumeClaimUnusedSinceTime 36:a- 37:b+
PersistentVolumeLastPhaseTransitionTime 30:b+ 31-32:s+!
PodAndContainerStatsFromCRI 30-36:a- 37:b-
PodCertificateRequest 34:a- 35-36:b- 37:s+
PodDeletionCost 30-37:b+
PodDisruptionConditions 30:b+ 31-33:s+!
PodGroupPreemptionPolicy 37:a-
PodHostIPs 30-31:s+!
PodIndexLabel 30-31:b+ 32-34:s+!
PodLevelResourceManagers 36:a- 37:b-
PodLevelResources 32-33:a- 34-37:b+
PodLevelResourcesFixDefaulting 37:b+
PodLevelResourcesFixKubeletQOSClass 37:b+
PodLifecycleSleepAction 30-33:b+ 34-36:s+!
PodLifecycleSleepActionAllowZero 32:a- 33:b+ 34-36:s+!
PodLogsQuerySplitStreams 32-37:a-
PodObservedGenerationTracking 33:a- 34:b+ 35-37:s+!
PodReadyToStartContainersCondition 30-36:b+ 37:s+!
PodSchedulingReadiness 30-37:s+!
PodTopologyLabelsAdmission 33-34:a- 35-37:b+
PodsAPI 36:a- 37:b+
PortForwardWebsockets 30:a- 31-37:b+
PreferSameTrafficDistribution 33:a- 34:b+ 35-37:s+!
PreventStaticPodAPIReferences 34-36:b+
ProbeHostPodSecurityStandards 34:s+!
ProcMountType 30:a- 31-32:b- 33-35:b+ 36-37:s+!
QOSReserved 30-37:a-
ReadWriteOncePod 30:s+!
RecoverVolumeExpansionFailure 30-31:a- 32-33:b+ 34-37:s+!
RecursiveReadOnlyMounts 30:a- 31-32:b+ 33-37:s+!
ReduceDefaultCrashLoopBackOffDecay 33-37:a-
RelaxedDNSSearchValidation 32:a- 33:b+ 34-36:s+!
RelaxedEnvironmentVariableValidation 30-31:a- 32-33:b+ 34-37:s+!
RelaxedServiceNameValidation 34-35:a- 36:b+ 37:s+!
ReloadKubeletClientCAFile 36-37:b+
ReloadKubeletServerCertificateFile 31-37:b+
RemainingItemCount 30-32:s+!
RemoteRequestHeaderUID 32:a- 33-37:b+
ResilientWatchCacheInitialization 31-33:b+ 34-36:s+!
ResourceHealthStatus 31-35:a- 36-37:b+
ResourceHealthStatusMessage 36-37:b+
RestartAllContainersOnContainerExits 35:a- 36-37:b+
RetryGenerateName 30:a- 31:b+ 32-36:s+!
RotateKubeletServerCertificate 30-37:b+
RuntimeClassInImageCriApi 30-37:a-
SELinuxChangePolicy 32:a- 33-35:b+ 36-37:s+!
SELinuxMount 30-32:a- 33-36:b- 37:s+
SELinuxMountReadWriteOncePod 30-35:b+ 36-37:s+!
SchedulerAsyncAPICalls 34:b- 35:b+ 36-37:b-
SchedulerAsyncPreemption 32:a- 33-37:b+
SchedulerPopFromBackoffQ 33-37:b+
SchedulerPreQueueingHints 37:a-
SchedulerQueueingHints 30-31:b- 32-33:b+ 34-36:s+!
SeparateCacheWatchRPC 30-32:b+ 33-35:d- 36-37:d-!
SeparateTaintEvictionController 30-33:b+ 34-37:s+!
ServerSideApply 30-31:s+!
ServerSideFieldValidation 30-31:s+!
ServiceAccountNodeAudienceRestriction 32:b- 33-37:b+
ServiceAccountTokenJTI 30-31:b+ 32-37:s+!
ServiceAccountTokenNodeBinding 30:a- 31-32:b+ 33-37:s+!
ServiceAccountTokenNodeBindingValidation 30-31:b+ 32-37:s+!
ServiceAccountTokenPodNodeInfo 30-31:b+ 32-37:s+!
ServiceCIDRStatusFieldWiping 36-37:d+
ServiceNodePortStaticSubrange 30:s+!
ServiceTrafficDistribution 30:a- 31-32:b+ 33-35:s+!
ShardedListAndWatch 36-37:a-
SidecarContainers 30-32:b+ 33-36:s+!
SizeBasedListCostEstimate 34-37:b+
SizeMemoryBackedVolumes 30-31:b+ 32-34:s+!
SkipReadOnlyValidationGCE 30:d+
StableLoadBalancerNodeSet 30-31:s+!
StaleControllerConsistencyDaemonSet 36-37:b+
StaleControllerConsistencyHPA 37:b+
StaleControllerConsistencyJob 36-37:b+
StaleControllerConsistencyReplicaSet 36-37:b+
StaleControllerConsistencyStatefulSet 36-37:b+
StatefulSetAutoDeletePVC 30-31:b+ 32-34:s+!
StatefulSetRecreateStrategy 37:a-
StatefulSetSemanticRevisionComparison 34-37:b+
StatefulSetStartOrdinal 30:b+ 31-33:s+!
StorageCapacityScoring 33-36:a- 37:b+
StorageNamespaceIndex 30-32:b+ 33-37:d+
StorageVersionAPI 30-37:a-
StorageVersionHash 30-37:b+
StorageVersionMigrator 30-34:a- 35-36:b- 37:s+
StreamingCollectionEncodingToJSON 33:b+ 34-36:s+!
StreamingCollectionEncodingToProtobuf 33:b+ 34-36:s+!
StrictCostEnforcementForVAP 30-31:b- 32-34:s+!
StrictCostEnforcementForWebhooks 30-31:b- 32-34:s+!
StrictIPCIDRValidation 33-35:a- 36-37:b+
StructuredAuthenticationConfiguration 30-33:b+ 34-36:s+!
StructuredAuthenticationConfigurationEgressSelector 34-37:b+
StructuredAuthenticationConfigurationJWKSMetrics 35-37:b+
StructuredAuthorizationConfiguration 30-31:b+ 32-35:s+!
SupplementalGroupsPolicy 31-32:a- 33-34:b+ 35-37:s+!
SystemdWatchdog 32-34:b+ 35-37:s+!
TaintTolerationComparisonOperators 35-37:a-
TokenRequestServiceAccountUIDValidation 34-37:b+
TopologyAwareHints 30-32:b+ 33-35:s+!
TopologyAwareWorkloadScheduling 36-37:a-
TopologyManagerPolicyAlphaOptions 30-37:a-
TopologyManagerPolicyBetaOptions 30-37:b+
TopologyManagerPolicyOptions 30-31:b+ 32-35:s+ 36-37:s+!
TranslateStreamCloseWebsocketRequests 30-37:b+
UnauthenticatedHTTP2DOSMitigation 30-37:b+
UnknownVersionInteroperabilityProxy 30-35:a- 36-37:b+
UnlockWhileProcessingFIFO 36-37:b+
UserNamespacesHostNetworkSupport 35-37:a-
UserNamespacesPodSecurityStandards 30-34:a-
UserNamespacesSupport 30-32:b- 33-35:b+ 36-37:s+!
ValidatingAdmissionPolicy 30-31:s+!
VolumeAttributesClass 30:a- 31-33:b- 34-35:s+ 36-37:s+!
VolumeBindMountOptions 37:a-
VolumeCapacityPriority 30-32:a-
VolumeLimitScaling 35-36:a- 37:b+
WatchBookmark 30-32:s+!
WatchCacheInitializationPostStartHook 31-35:b- 36:b+ 37:s+!
WatchFromStorageWithoutResourceVersion 30-32:b- 33-35:d-!
WatchList 30-31:a- 32:b+ 33:b- 34-37:b+
WatchListClient 30-34:b- 35-37:b+
WatchListCompression 37:b+
WebhookRoundTripLoadBalancing 37:b+
WinDSR 30-32:a- 33:b+ 34-37:s+!
WinOverlay 30-33:b+ 34-37:s+!
WindowsCPUAndMemoryAffinity 32-37:a-
WindowsGracefulNodeShutdown 32-33:a- 34-37:b+
WindowsHostNetwork 30-32:a+ 33-37:d-
WorkloadAwarePreemption 36:a-
WorkloadWithJob 36-37:a-
ZeroLimitedNominalConcurrencyShares 30-31:s+!
"""
"""Each gate with its minor releases: stage, on (+) or off (-) by default, locked (!)."""

DEPENDENCIES = """\
35-36 AuthorizeNodeWithSelectors AuthorizeWithSelectors
35-37 ClusterTrustBundleProjection ClusterTrustBundle
37 CompositePodGroup GenericWorkload TopologyAwareWorkloadScheduling
35-37 DRAAdminAccess DynamicResourceAllocation
35-37 DRAConsumableCapacity DynamicResourceAllocation
37 DRADerivedAttributes DynamicResourceAllocation
35-37 DRADeviceBindingConditions DRAResourceClaimDeviceStatus DynamicResourceAllocation
37 DRADeviceCompatibilityGroups DRAPartitionableDevices DynamicResourceAllocation
35-37 DRADeviceTaintRules DRADeviceTaints
35-37 DRADeviceTaints DynamicResourceAllocation
35-37 DRAExtendedResource DynamicResourceAllocation
37 DRAFractionalCapacityRange DRAConsumableCapacity
36-37 DRAListTypeAttributes DynamicResourceAllocation
36-37 DRANodeAllocatableResources DynamicResourceAllocation
37 DRAOptionalNodeOperations DynamicResourceAllocation NodeDeclaredFeatures
35-37 DRAPartitionableDevices DynamicResourceAllocation
37 DRAPartitionableDevicesType DRAPartitionableDevices DRAResourcePoolStatus DynamicResourceAllocation
35-37 DRAPrioritizedList DynamicResourceAllocation
36-37 DRAResourceClaimGranularStatusAuthorization DRAResourceClaimDeviceStatus DynamicResourceAllocation
36-37 DRAResourcePoolStatus DynamicResourceAllocation
35-37 DRASchedulerFilterTimeout DynamicResourceAllocation
36-37 DRAWorkloadResourceClaims DynamicResourceAllocation GenericWorkload
36-37 DeclarativeValidationBeta DeclarativeValidation
35-37 DeclarativeValidationTakeover DeclarativeValidation
35-37 DisableAllocatorDualWrite MultiCIDRServiceAllocator
37 EventedPLEG PLEGOnDemandRelist
36-37 ExtendWebSocketsToKubelet NodeDeclaredFeatures
35-36 GangScheduling GenericWorkload
35-37 GracefulNodeShutdownBasedOnPodPriority GracefulNodeShutdown
37 H2CContainerProbe NodeDeclaredFeatures
36-37 ImageVolumeWithDigest ImageVolume
35-37 InPlacePodLevelResourcesVerticalScaling InPlacePodVerticalScaling NodeDeclaredFeatures PodLevelResources
35 InPlacePodVerticalScalingAllocatedStatus InPlacePodVerticalScaling
35-37 InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScaling
35 InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScaling MemoryManager
36-37 InPlacePodVerticalScalingExclusiveMemory InPlacePodVerticalScaling
36-37 InPlacePodVerticalScalingInitContainers InPlacePodVerticalScaling NodeDeclaredFeatures
37 InPlacePodVerticalScalingMemoryBackedVolumes InPlacePodVerticalScaling NodeDeclaredFeatures
37 InPlacePodVerticalScalingSchedulerPreemption InPlacePodVerticalScaling
37 KubeletAllocatedPodsEndpoint InPlacePodVerticalScaling
35-37 MatchLabelKeysInPodTopologySpreadSelectorMerge MatchLabelKeysInPodTopologySpread
37 NodeControllerLeaseCircuitBreaker AtomicFIFO
35-36 PodCertificateRequest AuthorizeNodeWithSelectors
37 PodGroupPreemptionPolicy GenericWorkload
36-37 PodLevelResourceManagers PodLevelResources
37 PodLevelResourcesFixDefaulting PodLevelResources
37 PodLevelResourcesFixKubeletQOSClass PodLevelResources
35-36 PodLifecycleSleepActionAllowZero PodLifecycleSleepAction
35-37 ProcMountType UserNamespacesSupport
35-37 ResourceHealthStatus DynamicResourceAllocation
36-37 ResourceHealthStatusMessage ResourceHealthStatus
35-37 RestartAllContainersOnContainerExits ContainerRestartRules NodeDeclaredFeatures
35-37 ServiceAccountTokenNodeBinding ServiceAccountTokenNodeBindingValidation
36-37 StaleControllerConsistencyDaemonSet AtomicFIFO
37 StaleControllerConsistencyHPA AtomicFIFO
36-37 StaleControllerConsistencyJob AtomicFIFO
36-37 StaleControllerConsistencyReplicaSet AtomicFIFO
36-37 StaleControllerConsistencyStatefulSet AtomicFIFO
35-37 StorageVersionAPI APIServerIdentity
35-36 StructuredAuthenticationConfigurationEgressSelector StructuredAuthenticationConfiguration
35-36 StructuredAuthenticationConfigurationJWKSMetrics StructuredAuthenticationConfiguration
36-37 TopologyAwareWorkloadScheduling GenericWorkload
35-37 UnknownVersionInteroperabilityProxy APIServerIdentity
35 UserNamespacesHostNetworkSupport UserNamespacesSupport
36-37 UserNamespacesHostNetworkSupport NodeDeclaredFeatures UserNamespacesSupport
35 WindowsCPUAndMemoryAffinity MemoryManager
35-37 WindowsGracefulNodeShutdown GracefulNodeShutdown
36 WorkloadAwarePreemption GangScheduling
36-37 WorkloadWithJob GenericWorkload
"""
"""Minor releases, a gate, and the gates without which it may not be on."""
